//! Tests of every login method, each on a server that rejects all other clients.
#![expect(clippy::unwrap_used, reason = "a panic fails the test")]

use std::path::Path;

use bus::nats::{ConnectError, Connection, Login, Settings};
use data_encoding::BASE64URL_NOPAD;
use nkeys::KeyPair;
use support::server::NatsServer;

async fn connect(url: &str, login: Login) -> Result<Connection, ConnectError> {
    let mut settings = Settings::new(vec![url.to_owned()], "test", "muster.inbox.test");
    settings.login = login;
    settings.connect().await
}

fn with_user(server: &NatsServer, user: &str) -> String {
    server.url.replace("nats://", &format!("nats://{user}@"))
}

/// Connects with a secret file as editors and programs write it: with and without a line break at the end.
async fn assert_login_succeeds(server: &NatsServer, folder: &Path, secret: &str) {
    let plain = secret.trim_end();
    let commented = format!("# Whose it is\n#\n\n{plain}\n");
    for text in [plain.to_owned(), format!("{plain}\n"), format!("{secret}\r\n\n"), commented] {
        let file = folder.join("secret");
        std::fs::write(&file, &text).unwrap();
        let login = Login::Credentials(file);
        connect(&server.url, login).await.unwrap_or_else(|error| panic!("{text:?}: {error}"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn user_and_password_in_url_log_in() {
    let folder = tempfile::tempdir().unwrap();
    let users = "authorization { users: [ { user: bbs, password: \"p@ss/w:rd\" } ] }";
    let server = NatsServer::start_with(folder.path(), users).await.unwrap();
    connect(&with_user(&server, "bbs:p%40ss%2Fw%3Ard"), Login::Anonymous).await.unwrap();
    for stranger in ["bbs:wrong", "bbs", "other:p%40ss%2Fw%3Ard"] {
        let error = connect(&with_user(&server, stranger), Login::Anonymous).await.unwrap_err().to_string();
        assert!(error.contains("refused the connection") && !error.contains("wrong"), "{error}");
    }
    connect(&server.url, Login::Anonymous).await.unwrap_err();
}

#[tokio::test(flavor = "multi_thread")]
async fn token_in_url_logs_in() {
    let folder = tempfile::tempdir().unwrap();
    let server = NatsServer::start_with(folder.path(), "authorization { token: s3cret }").await.unwrap();
    connect(&with_user(&server, "s3cret"), Login::Anonymous).await.unwrap();
    connect(&with_user(&server, "guess"), Login::Anonymous).await.unwrap_err();
}

#[tokio::test(flavor = "multi_thread")]
async fn nkey_seed_file_logs_in() {
    let folder = tempfile::tempdir().unwrap();
    let user = KeyPair::new_user();
    let users = format!("authorization {{ users: [ {{ nkey: {} }} ] }}", user.public_key());
    let server = NatsServer::start_with(folder.path(), &users).await.unwrap();
    assert_login_succeeds(&server, folder.path(), &user.seed().unwrap()).await;
    connect(&server.url, Login::Anonymous).await.unwrap_err();
}

/// Returns a JWT with these claims for `subject`, signed by `issuer`.
fn jwt(issuer: &KeyPair, subject: &KeyPair, claims: &str) -> String {
    let (iss, sub) = (issuer.public_key(), subject.public_key());
    let body =
        format!(r#"{{"jti":"x","iat":1700000000,"iss":"{iss}","name":"n","sub":"{sub}","nats":{claims}}}"#);
    let encode = |text: &[u8]| BASE64URL_NOPAD.encode(text);
    let signed = format!("{}.{}", encode(br#"{"typ":"JWT","alg":"ed25519-nkey"}"#), encode(body.as_bytes()));
    format!("{signed}.{}", encode(&issuer.sign(signed.as_bytes()).unwrap()))
}

#[tokio::test(flavor = "multi_thread")]
async fn credentials_file_logs_in() {
    let folder = tempfile::tempdir().unwrap();
    let (operator, system, account) =
        (KeyPair::new_operator(), KeyPair::new_account(), KeyPair::new_account());
    let user = KeyPair::new_user();
    let limits = r#"{"subs":-1,"data":-1,"payload":-1,"imports":-1,"exports":-1,"wildcards":true,"conn":-1,"leaf":-1}"#;
    let of_account = format!(r#"{{"type":"account","version":2,"limits":{limits}}}"#);
    let config = format!(
        "operator: {}\nsystem_account: {}\nresolver: MEMORY\nresolver_preload: {{ {}: {}, {}: {} }}",
        jwt(&operator, &operator, r#"{"type":"operator","version":2}"#),
        system.public_key(),
        system.public_key(),
        jwt(&operator, &system, &of_account),
        account.public_key(),
        jwt(&operator, &account, &of_account),
    );
    let server = NatsServer::start_with(folder.path(), &config).await.unwrap();
    let token = jwt(&account, &user, r#"{"type":"user","version":2,"subs":-1,"data":-1,"payload":-1}"#);
    let file = format!(
        "-----BEGIN NATS USER JWT-----\n{token}\n------END NATS USER JWT------\n\n\
         -----BEGIN USER NKEY SEED-----\n{}\n------END USER NKEY SEED------",
        user.seed().unwrap()
    );
    assert_login_succeeds(&server, folder.path(), &file).await;
    connect(&server.url, Login::Anonymous).await.unwrap_err();
}
