//! Parses requests to run a program in the container of an instance.

use serde_json::Value;

use super::actions::take_program;
use super::commands::{ClientCommand, command_fields, take_instance};
use super::with_field;
use crate::exec::{Exec, Terminal, TerminalSize};
use crate::fields::Field;
use crate::limits;

/// Maximum number of columns and of rows of a terminal.
const MAX_TERMINAL_SIZE: u32 = 10_000;

pub(super) fn take(body: Field<'_>) -> Option<ClientCommand> {
    let mut fields =
        command_fields(body, "InstanceExec", "A request to run a program in the container of an instance.")?;
    fields.document("exec", "Program to run.");
    let instance = take_instance(&mut fields);
    let exec = fields.required("exec", take_exec);
    fields.finish(&[]);
    let (process_guid, index, definition_id) = instance?;
    Some(ClientCommand::InstanceExec { process_guid, index, definition_id, exec: exec? })
}

fn take_exec(field: Field<'_>) -> Option<Exec> {
    let (path_of_exec, problems) = (field.path.clone(), field.problems);
    let mut fields = field.object_of::<Exec>("ExecSpec")?;
    let path = fields.required("path", |field| without_nul(field).and_then(take_program));
    let args = fields.with_default("args", vec![], |field| {
        field.list_of(limits::EXEC_BYTES, |field| take_text(field, limits::EXEC_BYTES))
    });
    let dir = fields.with_default("dir", String::new(), |field| take_text(field, limits::PATH_BYTES));
    let user = fields.with_default("user", String::new(), |field| take_text(field, limits::USER_BYTES));
    let terminal = fields.optional("terminal", take_terminal);
    fields.finish(&[]);
    let exec = Exec { path: path?, args: args?, dir: dir?, user: user?, terminal: terminal? };
    let bytes = exec.path.len() + exec.args.iter().map(|arg| arg.len() + 1).sum::<usize>();
    if bytes > limits::EXEC_BYTES {
        let problem = format!(
            "has {bytes} bytes of path and arguments, more than {}: pass the rest on standard input",
            limits::EXEC_BYTES
        );
        problems.add(&path_of_exec, problem);
        return None;
    }
    Some(exec)
}

/// Parses text without NUL, which can be passed to a program.
fn take_text(field: Field<'_>, bytes: usize) -> Option<String> {
    without_nul(field)?.text(bytes)
}

fn without_nul(field: Field<'_>) -> Option<Field<'_>> {
    if field.value.as_str().is_some_and(|text| text.contains('\0')) {
        return field.bad("must not contain NUL");
    }
    Some(field)
}

fn take_terminal(field: Field<'_>) -> Option<Terminal> {
    let mut fields = field.object_of::<Terminal>("TerminalSpec")?;
    let kind = fields.required("kind", |field| {
        let is_kind = |kind: &str| !kind.is_empty() && kind.bytes().all(|byte| byte.is_ascii_graphic());
        if !field.records("pattern", "^[!-~]+$") && !field.value.as_str().is_some_and(is_kind) {
            return field.bad("must be a terminal type such as xterm, in printable ASCII");
        }
        field.text(limits::TERMINAL_KIND_BYTES)
    });
    let size = fields.required("size", |field| {
        let mut fields = field.object_of::<TerminalSize>("TerminalSizeSpec")?;
        let signs = |field: Field<'_>| field.number_32(1..=MAX_TERMINAL_SIZE)?.try_into().ok();
        let (rows, columns) = (fields.required("rows", signs), fields.required("columns", signs));
        fields.finish(&[]);
        Some(TerminalSize { rows: rows?, columns: columns? })
    });
    fields.finish(&[]);
    Some(Terminal { kind: kind?, size: size? })
}

/// Adds the program to a body, as JSON that [`take`] can parse.
pub(super) fn with_exec(body: Value, exec: &Exec) -> Value {
    with_field(body, "exec", serde_json::to_value(exec).expect("it is JSON"))
}
