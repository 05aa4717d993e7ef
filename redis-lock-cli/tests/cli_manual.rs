//! `man`, `completions`, and what is said where no server was named. None of them needs one.

use std::io::Write;
use std::process::{Command, Output, Stdio};

fn run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_redis-lock"))
        .env_remove("REDIS_URL")
        .args(arguments)
        .output()
        .unwrap()
}

fn said(output: &Output) -> (i32, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap_or(-1), text(&output.stdout), text(&output.stderr))
}

#[test]
fn each_command_has_a_manual_page() {
    let (code, page, _) = said(&run(&["man"]));
    assert_eq!(code, 0);
    assert!(page.contains(".TH redis-lock 1") && page.contains("EXIT STATUS"), "{page}");
    for command in
        ["ls", "show", "watch", "acquire", "release", "run", "check", "man", "completions"]
    {
        assert!(page.contains(command), "{command} is not named");
        let (code, page, _) = said(&run(&["man", command]));
        assert_eq!(code, 0);
        assert!(page.contains(&format!("redis\\-lock\\-{command}")), "{page}");
    }
    let (code, _, complaint) = said(&run(&["man", "fly"]));
    let expected = "redis-lock: there is no command `fly`; `redis-lock help` lists them\n";
    assert_eq!((code, complaint.as_str()), (64, expected));
}

#[test]
fn each_shell_has_completions_that_it_can_read() {
    for shell in ["bash", "zsh", "fish"] {
        let (code, script, _) = said(&run(&["completions", shell]));
        assert_eq!(code, 0);
        assert!(script.contains("min-hold") && script.contains("redis-lock"), "{shell}: {script}");
        let Ok(mut reads) = Command::new(shell).arg("-n").stdin(Stdio::piped()).spawn() else {
            eprintln!("no {shell} here to read it");
            continue;
        };
        reads.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
        assert!(reads.wait().unwrap().success(), "{shell}");
    }
    assert_eq!(said(&run(&["completions", "cmd"])).0, 64);
}

#[test]
fn a_usage_line_names_what_is_missing_and_not_what_the_environment_says() {
    let mut program = Command::new(env!("CARGO_BIN_EXE_redis-lock"));
    let program = program.arg("show").env("REDIS_URL", "redis://localhost");
    let output = program.env("REDIS_LOCKS_NAMESPACE", "app").output().unwrap();
    let (code, _, complaint) = said(&output);
    assert_eq!(code, 64);
    assert!(complaint.contains("Usage: redis-lock show <KEY>\n"), "{complaint}");
}

#[test]
fn without_a_server_it_says_what_to_set() {
    let (code, _, complaint) = said(&run(&["ls"]));
    assert_eq!(code, 78);
    assert_eq!(
        complaint,
        "redis-lock: no server was named: set REDIS_URL, as in REDIS_URL=redis://localhost:6379, \
         or pass --url\n"
    );
}
