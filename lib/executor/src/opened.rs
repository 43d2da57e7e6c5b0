//! Transfer of secrets into a container. The disk holds sealed secrets only. The executor decrypts them and
//! passes the plain texts to the shim as environment variables. The shim keeps them in memory while the
//! container lives, and sets them in the recipe. This exposes no more than the final place of the secrets,
//! which is the environment of a process of the same user.

use std::env;
use std::io;

use schemas::action::{Secret, Variable};
use schemas::container::Recipe;
use schemas::secret::{Owner, Place, Purpose, variables, variables_mut};
use secrets::Keys;

/// Name prefix of the shim's variables for secrets. It is followed by the secret's number in the order of the
/// recipe.
const NAME: &str = "MUSTER_OPENED_";

/// Returns the plain texts of a recipe's sealed secrets as variables for its shim. An error names the secret
/// and the reason.
pub(crate) fn for_shim(recipe: &Recipe, keys: &Keys) -> io::Result<Vec<(String, String)>> {
    let place = |name: &str| Place {
        domain: recipe.domain.clone(),
        owner: Owner::of_work(&recipe.work),
        purpose: Purpose::Variable(name.to_owned()),
    };
    let sealed = variables(recipe).into_iter().filter(|one| one.value.plain().is_none());
    let open = |(at, Variable { name, value }): (usize, &Variable)| {
        let text = keys
            .text(&place(name), value)
            .map_err(|error| io::Error::other(format!("the secret {name} {}", error.told_by("this cell"))));
        Ok((format!("{NAME}{at}"), text?))
    };
    sealed.enumerate().map(open).collect()
}

/// Replaces the sealed secrets of a recipe by the plain texts in this shim's environment.
pub(crate) fn in_shim(recipe: &mut Recipe) -> io::Result<()> {
    let sealed = variables_mut(recipe).into_iter().filter(|one| one.value.plain().is_none());
    for (at, Variable { name, value }) in sealed.enumerate() {
        let text = env::var(format!("{NAME}{at}"));
        let text = text.map_err(|_| io::Error::other(format!("the secret {name} was not given")))?;
        *value = Secret::Plain(text.into());
    }
    Ok(())
}
