//! Servers with users, other names for commands, TLS, and of the oldest version.

use std::process::{Command, Stdio};

use testbed::{Certificates, Flavor, Server, ServerBinary};

#[test]
fn the_oldest_redis_can_be_had() {
    let Some(old) = ServerBinary::redis_6() else { testbed::skip!("no Redis 6.2 to be had") };
    assert_eq!((old.flavor(), old.version().0, old.version().1), (Flavor::Redis, 6, 2));
    let server = Server::builder().binary(old.clone()).aof().start();
    server.run::<()>("SET data 1 PX 60000");
    server.restart();
    assert!(server.exists("data"));
    let clustered = Server::builder().binary(old).cluster().start();
    clustered.run::<()>("SET data 1 PX 60000");
}

#[test]
fn older_ones_run_with_what_they_have() {
    for (binary, version) in
        [(ServerBinary::redis_5(), (5, 0)), (ServerBinary::redis_6_0(), (6, 0))]
    {
        let Some(old) = binary else { testbed::skip!("no Redis {version:?} to be had") };
        assert_eq!((old.version().0, old.version().1), version);
        let server = Server::builder().binary(old).start();
        server.run::<()>("SET lock:job 1 PX 60000");
        assert!(server.exists("lock:job"));
    }
}

#[test]
fn a_command_can_have_another_name_or_none() {
    let server =
        Server::builder().rename_command("EVAL", "").rename_command("SUBSCRIBE", "listen").start();
    let mut client = server.client().get_connection().unwrap();
    let refused = redis::cmd("EVAL").arg("return 1").arg(0).query::<i32>(&mut client);
    assert!(refused.unwrap_err().to_string().contains("unknown command"));
    assert!(redis::cmd("SUBSCRIBE").arg("a").query::<redis::Value>(&mut client).is_err());
    assert!(redis::cmd("listen").arg("a").query::<redis::Value>(&mut client).is_ok());
}

#[test]
fn a_user_has_the_rights_that_were_given() {
    let server = Server::builder().user("app on >secret ~lock:* +get +set").start();
    let url = format!("redis://app:secret@127.0.0.1:{}", server.port());
    let mut client = redis::Client::open(url).unwrap().get_connection().unwrap();
    redis::cmd("SET").arg("lock:job").arg(1).arg("PX").arg(9000).exec(&mut client).unwrap();
    assert!(redis::cmd("GET").arg("other").exec(&mut client).is_err());
    assert!(redis::cmd("EVAL").arg("return 1").arg(0).exec(&mut client).is_err());
}

#[test]
fn a_server_speaks_tls_with_a_certificate_of_the_tests_own_authority() {
    let binary = ServerBinary::any();
    if !binary.speaks_tls() {
        testbed::skip!("{binary} was built without TLS");
    }
    let Some(certificates) = Certificates::new() else { testbed::skip!("there is no openssl") };
    let server = Server::builder().binary(binary).tls(&certificates).start();
    let port = server.tls_url().rsplit_once(':').unwrap().1.to_owned();
    let accepts = |authority: &str| {
        let mut client = Command::new("openssl");
        client.args(["s_client", "-brief", "-verify_return_error", "-verify_ip", "127.0.0.1"]);
        client.args(["-connect", &format!("127.0.0.1:{port}"), "-CAfile", authority]);
        client.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        client.status().unwrap().success()
    };
    assert!(accepts(&certificates.authority_file().display().to_string()));
    let other = Certificates::new().unwrap();
    assert!(!accepts(&other.authority_file().display().to_string()));
    assert!(certificates.client_file().exists() && certificates.client_key_file().exists());
}

#[test]
fn a_program_without_tls_is_known() {
    let Some(old) = ServerBinary::redis_6() else { testbed::skip!("no Redis 6.2 to be had") };
    assert!(!old.speaks_tls());
}
