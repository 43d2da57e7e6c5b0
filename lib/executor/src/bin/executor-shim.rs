//! Stand-alone shim for the tests of this crate, and a small server that the shim runs.
//!
//! `executor-shim shim DIR` runs the container of a folder. `executor-shim serve` answers `hello from INDEX`
//! to every connection on `PORT`. `executor-shim host DIR` runs containers like a rep until it is killed. It
//! runs one container for each recipe on its standard input.

use std::io::{self, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::ExitCode;

use executor::process::{Executor, Settings};
use schemas::names::CellId;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["shim", folder] => executor::shim::run(Path::new(folder), None),
        ["shim", folder, stage] => executor::shim::run(Path::new(folder), Some(stage.as_ref())),
        ["serve"] => end(serve()),
        ["host", data] => end(host(Path::new(data))),
        _ => ExitCode::from(2),
    }
}

fn end(result: io::Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::from(3),
    }
}

/// Runs containers. Prints `open` once the data folder is open, and never exits on its own.
fn host(data: &Path) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let cell_id = CellId::new("cell-1").map_err(io::Error::other)?;
        let shim = vec![std::env::current_exe()?.into(), "shim".into()];
        let settings = Settings::new(data.to_owned(), cell_id, "127.0.0.1", shim);
        let (executor, mut changes) = Executor::open(settings).await.map_err(io::Error::other)?;
        writeln!(io::stdout(), "open")?;
        for line in io::stdin().lines() {
            executor.run(serde_json::from_str(&line?)?);
        }
        while changes.recv().await.is_some() {}
        Ok(())
    })
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
