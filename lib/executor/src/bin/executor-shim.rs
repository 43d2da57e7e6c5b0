//! The shim alone, and a small server for it to run: what the tests of this crate start.
//!
//! `executor-shim shim DIR` runs the container of a folder; `executor-shim serve` answers `hello from INDEX` to every
//! connection on `PORT`.

use std::io::{self, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["shim", folder] => executor::shim::run(Path::new(folder)),
        ["serve"] => match serve() {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::from(3),
        },
        _ => ExitCode::from(2),
    }
}

fn serve() -> io::Result<()> {
    let variable = |name: &str| std::env::var(name).map_err(io::Error::other);
    let port: u16 = variable("PORT")?.parse().map_err(io::Error::other)?;
    let index = variable("INSTANCE_INDEX")?;
    for connection in TcpListener::bind((Ipv4Addr::LOCALHOST, port))?.incoming() {
        connection?.write_all(format!("hello from {index}\n").as_bytes())?;
    }
    Ok(())
}
