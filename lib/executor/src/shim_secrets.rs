//! Transfer of secrets into a container. The disk contains secrets only in encrypted (sealed) form. The
//! executor decrypts them and passes the plain texts to the shim as environment variables. The shim keeps the
//! plain texts in memory until the container ends, and inserts them into its copy of the recipe. This
//! transfer does not increase the exposure of the secrets: their destination is the environment of a process
//! of the same user anyway.

use std::env;
use std::io;

use schemas::action::{Secret, Variable};
use schemas::container::Recipe;
use schemas::secret::{Binding, Owner, Purpose, variables, variables_mut};
use secrets::Keys;

/// Prefix of the names of the variables that pass secrets to the shim. The number of the secret, in the order
/// of the recipe, follows the prefix.
const VARIABLE_PREFIX: &str = "MUSTER_OPENED_";

/// Returns the plain texts of a recipe's sealed secrets as variables for its shim. An error names the secret
/// and the reason.
pub(crate) fn shim_variables(recipe: &Recipe, keys: &Keys) -> io::Result<Vec<(String, String)>> {
    let place = |name: &str| Binding {
        domain: recipe.domain.clone(),
        owner: Owner::of_work(&recipe.work),
        purpose: Purpose::Variable(name.to_owned()),
    };
    let sealed = variables(recipe).into_iter().filter(|one| one.value.plain().is_none());
    let open = |(at, Variable { name, value }): (usize, &Variable)| {
        let text = keys.text(&place(name), value).map_err(|error| {
            io::Error::other(format!("the secret {name} {}", error.describe_for("this cell")))
        });
        Ok((format!("{VARIABLE_PREFIX}{at}"), text?))
    };
    sealed.enumerate().map(open).collect()
}

/// Replaces the sealed secrets of a recipe by the plain texts in this shim's environment.
pub(crate) fn apply_to_recipe(recipe: &mut Recipe) -> io::Result<()> {
    let sealed = variables_mut(recipe).into_iter().filter(|one| one.value.plain().is_none());
    for (at, Variable { name, value }) in sealed.enumerate() {
        let text = env::var(format!("{VARIABLE_PREFIX}{at}"));
        let text =
            text.map_err(|_| io::Error::other(format!("the shim did not receive the secret {name}")))?;
        *value = Secret::Plain(text.into());
    }
    Ok(())
}
