//! A small web server for the examples: it answers with the instance that it is, and needs nothing but this program.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

/// How long a client may take to say what it wants.
const PATIENCE: Duration = Duration::from_secs(5);
/// Bytes of a request's head that are read.
const HEAD_BYTES: u64 = 16 * 1024;

/// Where it listens: as a container of a cell is told.
struct Place {
    address: String,
    port: u16,
}

/// Answers every request on `PORT`, until it is killed; or, to `check`, tells whether it does.
pub(crate) fn run(check: bool) -> ExitCode {
    match Place::from_environment().and_then(|place| if check { look(&place) } else { serve(&place) }) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&mut io::stderr(), &format!("example-server: {error}"));
            ExitCode::FAILURE
        }
    }
}

impl Place {
    fn from_environment() -> io::Result<Self> {
        let port = std::env::var("PORT").ok().and_then(|port| port.parse().ok());
        let port = port.ok_or_else(|| io::Error::other("PORT is not set to a number"))?;
        Ok(Self { address: variable("CF_INSTANCE_IP", "127.0.0.1"), port })
    }
}

fn variable(name: &str, usual: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| usual.to_owned())
}

/// Asks the server, and fails unless it answers as it should.
fn look(place: &Place) -> io::Result<()> {
    let mut connection = TcpStream::connect((place.address.as_str(), place.port))?;
    connection.set_read_timeout(Some(PATIENCE))?;
    connection.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
    let mut status = String::new();
    BufReader::new(io::Read::take(&connection, HEAD_BYTES)).read_line(&mut status)?;
    if status.starts_with("HTTP/1.1 200 ") {
        return Ok(());
    }
    Err(io::Error::other(format!("answered {:?}", status.trim_end())))
}

fn serve(place: &Place) -> io::Result<()> {
    let index = variable("INSTANCE_INDEX", "0");
    let cell = variable("MUSTER_CELL_ID", "nowhere");
    let listener = TcpListener::bind((place.address.as_str(), place.port))?;
    say(&mut io::stdout(), &format!("instance {index} listens on {}:{}", place.address, place.port));
    let body = format!("hello from instance {index} on cell {cell}\n");
    for connection in listener.incoming() {
        let body = body.clone();
        // A client that goes away half-way is not a reason to end.
        let answered = connection.map(|connection| thread::spawn(move || drop(answer(connection, &body))));
        if let Err(error) = answered {
            say(&mut io::stderr(), &format!("example-server: {error}"));
        }
    }
    Ok(())
}

/// Reads the head of one request, and answers it.
fn answer(connection: TcpStream, body: &str) -> io::Result<()> {
    connection.set_read_timeout(Some(PATIENCE))?;
    connection.set_write_timeout(Some(PATIENCE))?;
    let mut reader = BufReader::new(io::Read::take(&connection, HEAD_BYTES));
    let mut request = String::new();
    reader.read_line(&mut request)?;
    let mut header = String::new();
    while reader.read_line(&mut header)? > 2 {
        header.clear();
    }
    say(&mut io::stdout(), request.trim_end());
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nConnection: close\r\n";
    (&connection).write_all(format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()).as_bytes())
}

/// Writes a line. Whoever reads the log of an example may have gone.
fn say(to: &mut impl Write, line: &str) {
    drop(writeln!(to, "{line}"));
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn it_answers_over_http() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let place = Place { address: "127.0.0.1".into(), port: listener.local_addr().unwrap().port() };
        let check = thread::spawn(move || look(&place));
        answer(listener.accept().unwrap().0, "hello\n").unwrap();
        check.join().unwrap().unwrap();
        let mut browser = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        browser.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        let (connection, _) = listener.accept().unwrap();
        answer(connection, "hello\n").unwrap();
        let mut text = String::new();
        browser.read_to_string(&mut text).unwrap();
        assert!(text.starts_with("HTTP/1.1 200 OK\r\n") && text.ends_with("\r\n\r\nhello\n"), "{text:?}");
    }
}
