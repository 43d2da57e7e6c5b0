//! Limit of the import circles between the files of each crate.
//!
//! A file uses another file if one of its imports or paths leads to an item of that file. Re-exports are
//! followed to the defining file, so a name may be taken from any place that exports it. A use between a
//! module and one of its ancestors does not count: a module and its parts belong together. Test modules are
//! left out.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};

/// Maximum number of files in one circle.
const LIMIT: usize = 3;

/// Maximum number of re-exports that lead from a name to its definition. It also ends cyclic imports.
const MAX_HOPS: usize = 16;

/// Name in a module.
enum Name {
    Module(usize),
    Item,
    Import(Vec<String>),
}

/// Module of a crate. An inline module has the file of the module that contains it.
struct Module {
    file: usize,
    /// Path from the root of the crate.
    path: Vec<String>,
    parent: usize,
    /// Folder of the files of child modules.
    folder: PathBuf,
    names: BTreeMap<String, Vec<Name>>,
    globs: Vec<Vec<String>>,
    /// Paths that the code of the module contains.
    uses: BTreeSet<Vec<String>>,
}

/// Result of the resolution of a path: a module, or the module that defines an item.
#[derive(Clone, Copy)]
enum Target {
    Module(usize),
    ItemOf(usize),
}

/// Modules of one crate, from one root file. The module 0 is the root.
#[derive(Default)]
struct Crate {
    files: Vec<PathBuf>,
    modules: Vec<Module>,
}

impl Crate {
    fn read(root: &Path) -> Self {
        let mut this = Self::default();
        let folder = root.parent().expect("a folder").to_owned();
        this.add_file(root, folder, vec![], 0);
        this
    }

    fn add_module(&mut self, folder: PathBuf, path: Vec<String>, parent: usize) -> usize {
        let (names, file) = (BTreeMap::new(), self.files.len() - 1);
        self.modules.push(Module { file, path, parent, folder, names, globs: vec![], uses: BTreeSet::new() });
        self.modules.len() - 1
    }

    fn add_file(&mut self, file: &Path, folder: PathBuf, path: Vec<String>, parent: usize) -> usize {
        let text = fs::read_to_string(file).expect("a source file");
        let parsed = syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        self.files.push(file.to_owned());
        let module = self.add_module(folder, path, parent);
        Reader { krate: self, module }.visit_file(&parsed);
        module
    }

    /// Returns everything that a name of a module means. Empty if the module does not declare the name.
    fn look_up(&self, module: usize, name: &str, hops: usize) -> Vec<Target> {
        if hops == MAX_HOPS {
            return vec![];
        }
        let scope = &self.modules[module];
        let resolved = scope.names.get(name).into_iter().flatten().flat_map(|name| match name {
            Name::Module(child) => vec![Target::Module(*child)],
            Name::Item => vec![Target::ItemOf(module)],
            Name::Import(path) => self.resolve(module, path, hops + 1),
        });
        let resolved: Vec<Target> = resolved.collect();
        if !resolved.is_empty() {
            return resolved;
        }
        let globs = scope.globs.iter().flat_map(|glob| self.resolve(module, glob, hops + 1));
        let named = globs.flat_map(|found| match found {
            Target::Module(other) if other != module => self.look_up(other, name, hops + 1),
            Target::Module(_) | Target::ItemOf(_) => vec![],
        });
        named.collect()
    }

    /// Returns the targets of a path. Empty if the path leads to another crate.
    fn resolve(&self, module: usize, path: &[String], hops: usize) -> Vec<Target> {
        let Some((first, rest)) = path.split_first() else { return vec![] };
        let mut found = match first.as_str() {
            "crate" => vec![Target::Module(0)],
            "self" => vec![Target::Module(module)],
            "super" => vec![Target::Module(self.modules[module].parent)],
            name => self.look_up(module, name, hops),
        };
        for name in rest {
            let next = found.into_iter().flat_map(|found| match found {
                Target::Module(at) if name == "super" => vec![Target::Module(self.modules[at].parent)],
                Target::Module(at) => {
                    let named = self.look_up(at, name, hops);
                    // A macro may declare the name.
                    if named.is_empty() { vec![Target::ItemOf(at)] } else { named }
                }
                Target::ItemOf(_) => vec![found],
            });
            found = next.collect();
        }
        found
    }

    /// Returns the names by which each file uses each other file.
    fn graph(&self) -> Graph<'_> {
        let mut graph = Graph::new();
        for (at, module) in self.modules.iter().enumerate() {
            for path in &module.uses {
                for found in self.resolve(at, path, 0) {
                    let Target::ItemOf(target) = found else { continue };
                    let target = &self.modules[target];
                    let is_kin =
                        target.path.starts_with(&module.path) || module.path.starts_with(&target.path);
                    if target.file != module.file && !is_kin {
                        let uses = graph.entry(&self.files[module.file]).or_default();
                        let names = uses.entry(&self.files[target.file]).or_default();
                        names.extend(path.last().map(String::as_str));
                    }
                }
            }
        }
        graph
    }
}

/// Fills a module, and the modules below it.
struct Reader<'a> {
    krate: &'a mut Crate,
    module: usize,
}

impl Reader<'_> {
    fn module(&mut self) -> &mut Module {
        &mut self.krate.modules[self.module]
    }

    fn declare(&mut self, name: String, meaning: Name) {
        self.module().names.entry(name).or_default().push(meaning);
    }

    fn import(&mut self, tree: &syn::UseTree, mut prefix: Vec<String>) {
        match tree {
            syn::UseTree::Path(path) => {
                prefix.push(path.ident.to_string());
                self.import(&path.tree, prefix);
            }
            syn::UseTree::Group(group) => {
                group.items.iter().for_each(|tree| self.import(tree, prefix.clone()));
            }
            syn::UseTree::Glob(_) => self.module().globs.push(prefix),
            syn::UseTree::Name(syn::UseName { ident }) => self.import_name(ident, ident, prefix),
            syn::UseTree::Rename(rename) => self.import_name(&rename.ident, &rename.rename, prefix),
        }
    }

    fn import_name(&mut self, ident: &syn::Ident, local: &syn::Ident, mut path: Vec<String>) {
        if ident != "self" {
            path.push(ident.to_string());
        }
        let local =
            if local == "self" { path.last().cloned().unwrap_or_default() } else { local.to_string() };
        self.module().uses.insert(path.clone());
        self.declare(local, Name::Import(path));
    }

    /// Records the paths `a::b` of a macro's arguments, which are not parsed.
    fn read_tokens(&mut self, tokens: TokenStream) {
        let (mut path, mut colons) = (vec![], 0);
        for token in tokens {
            match token {
                TokenTree::Ident(ident) => {
                    if colons != 2 {
                        self.module().uses.insert(std::mem::take(&mut path));
                    }
                    path.push(ident.to_string());
                    colons = 0;
                }
                TokenTree::Punct(punct) if punct.as_char() == ':' => colons += 1,
                TokenTree::Group(group) => {
                    self.read_tokens(group.stream());
                    colons = 0;
                }
                TokenTree::Punct(_) | TokenTree::Literal(_) => colons = 0,
            }
        }
        self.module().uses.insert(path);
    }
}

impl<'ast> Visit<'ast> for Reader<'_> {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        if let Some(name) = item_name(item) {
            self.declare(name.to_string(), Name::Item);
        }
        visit::visit_item(self, item);
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        let name = item.ident.to_string();
        if is_test(&item.attrs) || name.ends_with("tests") {
            return;
        }
        let module = self.module();
        let (folder, mut path) = (module.folder.clone(), module.path.clone());
        path.push(name.clone());
        let within = folder.join(&name);
        let child = if let Some((_, items)) = &item.content {
            let child = self.krate.add_module(within, path, self.module);
            let mut reader = Reader { krate: self.krate, module: child };
            items.iter().for_each(|item| reader.visit_item(item));
            child
        } else {
            let flat = folder.join(format!("{name}.rs"));
            let file = if flat.is_file() { flat } else { within.join("mod.rs") };
            self.krate.add_file(&file, within, path, self.module)
        };
        self.declare(name, Name::Module(child));
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        if !is_test(&item.attrs) {
            self.import(&item.tree, vec![]);
        }
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        if !is_test(&item.attrs) {
            visit::visit_item_fn(self, item);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        self.module().uses.insert(names);
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        self.read_tokens(call.tokens.clone());
        visit::visit_macro(self, call);
    }
}

/// Returns the name that an item declares in its module. `None` for modules and imports, which are read
/// separately.
fn item_name(item: &syn::Item) -> Option<&syn::Ident> {
    match item {
        syn::Item::Const(item) => Some(&item.ident),
        syn::Item::Enum(item) => Some(&item.ident),
        syn::Item::Fn(item) => Some(&item.sig.ident),
        syn::Item::Macro(item) => item.ident.as_ref(),
        syn::Item::Static(item) => Some(&item.ident),
        syn::Item::Struct(item) => Some(&item.ident),
        syn::Item::Trait(item) => Some(&item.ident),
        syn::Item::TraitAlias(item) => Some(&item.ident),
        syn::Item::Type(item) => Some(&item.ident),
        syn::Item::Union(item) => Some(&item.ident),
        syn::Item::ExternCrate(_)
        | syn::Item::ForeignMod(_)
        | syn::Item::Impl(_)
        | syn::Item::Mod(_)
        | syn::Item::Use(_)
        | syn::Item::Verbatim(_)
        | _ => None,
    }
}

/// Returns `true` if the attributes contain `#[cfg(test)]`.
fn is_test(attributes: &[syn::Attribute]) -> bool {
    let mut tests = attributes.iter().filter_map(|attribute| match &attribute.meta {
        syn::Meta::List(list) if list.path.is_ident("cfg") => Some(list.tokens.to_string()),
        syn::Meta::List(_) | syn::Meta::Path(_) | syn::Meta::NameValue(_) => None,
    });
    tests.any(|condition| condition == "test")
}

/// For each file, the files that it uses, with the names.
type Graph<'a> = BTreeMap<&'a Path, BTreeMap<&'a Path, BTreeSet<&'a str>>>;

fn reachable<'a>(graph: &Graph<'a>, from: &'a Path) -> BTreeSet<&'a Path> {
    let (mut reached, mut open) = (BTreeSet::new(), vec![from]);
    while let Some(file) = open.pop() {
        let next = graph.get(file).into_iter().flat_map(BTreeMap::keys);
        open.extend(next.copied().filter(|file| reached.insert(*file)));
    }
    reached
}

/// Returns the sets of files that reach each other.
fn circles<'a>(graph: &Graph<'a>) -> BTreeSet<BTreeSet<&'a Path>> {
    let reached: BTreeMap<&Path, _> = graph.keys().map(|file| (*file, reachable(graph, file))).collect();
    let circle = |(file, others): (&&'a Path, &BTreeSet<&'a Path>)| {
        let back = |other: &&&Path| reached.get(**other).is_some_and(|others| others.contains(*file));
        others.iter().filter(back).copied().collect::<BTreeSet<_>>()
    };
    reached.iter().map(circle).filter(|circle| !circle.is_empty()).collect()
}

/// Returns the files of a circle, each with the files of the circle that it uses.
fn describe(circle: &BTreeSet<&Path>, graph: &Graph<'_>, source: &Path) -> String {
    let short = |file: &Path| file.strip_prefix(source).expect("a file of the crate").display().to_string();
    let lines = circle.iter().map(|file| {
        let others = graph[file].iter().filter(|(other, _)| circle.contains(*other));
        let uses = others.map(|(other, names)| {
            let names: Vec<_> = names.iter().copied().collect();
            format!("    uses {}: {}\n", short(other), names.join(", "))
        });
        format!("  {}\n{}", short(file), uses.collect::<String>())
    });
    lines.collect()
}

/// Returns the folders of all crates of the workspace that have a `src` folder, relative to its root.
fn crates(root: &Path) -> Vec<String> {
    let children = |folder: &str| {
        let entries = fs::read_dir(root.join(folder)).expect("a folder").flatten();
        let names = entries.map(|entry| format!("{folder}/{}", entry.file_name().to_string_lossy()));
        names.collect::<Vec<_>>()
    };
    let nested = ["services", "lib", "tests"].into_iter().flat_map(children);
    let all = ["schemas", "projections"].into_iter().map(str::to_owned).chain(nested);
    let mut all: Vec<_> = all.filter(|folder| root.join(folder).join("src").is_dir()).collect();
    all.sort();
    all
}

/// Returns the root files of a crate: its library and its programs.
fn roots(source: &Path) -> Vec<PathBuf> {
    let programs = fs::read_dir(source.join("bin")).into_iter().flatten().flatten().map(|entry| entry.path());
    let named = ["lib.rs", "main.rs"].into_iter().map(|name| source.join(name));
    named.filter(|file| file.is_file()).chain(programs).collect()
}

#[test]
fn import_circles_are_small() {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
    let mut problems = vec![];
    for folder in crates(workspace) {
        let source = workspace.join(&folder).join("src");
        for root in roots(&source) {
            let krate = Crate::read(&root);
            let graph = krate.graph();
            for circle in circles(&graph) {
                if circle.len() > LIMIT {
                    let text = describe(&circle, &graph, &source);
                    problems.push(format!("{folder}: import circle of {} files:\n{text}", circle.len()));
                }
            }
        }
    }
    assert!(
        problems.is_empty(),
        "at most {LIMIT} files may use each other in a circle\n{}",
        problems.join("\n")
    );
}
