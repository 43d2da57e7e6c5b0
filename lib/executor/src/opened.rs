//! Secrets on their way into a container. On the disk is what is sealed: the executor opens it and gives the texts to the
//! shim as variables of its environment, and the shim, which keeps them in memory for as long as the container lives, puts them
//! where they belong. They are where they end anyway, in the environment of a process of the same user.

use std::env;
use std::io;

use schemas::action::{Secret, Variable};
use schemas::container::Recipe;
use schemas::secret::{Owner, Place, Purpose, variables, variables_mut};
use secrets::Keys;

/// What the variables of a shim are called that hold the texts, with their number in the order of the recipe behind it.
const NAME: &str = "MUSTER_OPENED_";

/// The texts of what is sealed in a recipe, as variables for its shim. The error says which secret, and why.
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

/// Puts the texts that the executor gave to this shim where they belong.
pub(crate) fn in_shim(recipe: &mut Recipe) -> io::Result<()> {
    let sealed = variables_mut(recipe).into_iter().filter(|one| one.value.plain().is_none());
    for (at, Variable { name, value }) in sealed.enumerate() {
        let text = env::var(format!("{NAME}{at}"));
        let text = text.map_err(|_| io::Error::other(format!("the secret {name} was not given")))?;
        *value = Secret::Plain(text.into());
    }
    Ok(())
}
