//! Server side of HTTP: reads one request and answers it.

use std::io::{BufRead, BufReader, Error, ErrorKind, Read, Result, Write};
use std::net::TcpStream;

/// POST request.
#[derive(Clone, Debug)]
pub(crate) struct PostRequest {
    pub(crate) path: String,
    /// Header lines, in lower case.
    pub(crate) headers: Vec<String>,
    pub(crate) body: Vec<u8>,
}

impl PostRequest {
    /// Reads a POST request from a connection.
    pub(crate) fn read(connection: &TcpStream) -> Result<Self> {
        let mut reader = BufReader::new(connection);
        let mut first = String::new();
        reader.read_line(&mut first)?;
        let path = first.strip_prefix("POST ").and_then(|rest| rest.split(' ').next());
        let path = path.ok_or_else(|| Error::new(ErrorKind::InvalidData, first.clone()))?.to_owned();
        let (mut headers, mut length) = (vec![], 0);
        loop {
            let mut line = String::new();
            reader.read_line(&mut line)?;
            let line = line.trim_end().to_ascii_lowercase();
            if line.is_empty() {
                break;
            }
            if let Some(bytes) = line.strip_prefix("content-length:") {
                length = bytes.trim().parse().unwrap_or(0);
            }
            headers.push(line);
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        Ok(Self { path, headers, body })
    }
}

/// Sends a response with a status such as `200 OK` and `Connection: close`.
pub(crate) fn respond(mut connection: &TcpStream, status: &str, body: &str) -> Result<()> {
    let length = body.len();
    let text = format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}");
    connection.write_all(text.as_bytes())
}
