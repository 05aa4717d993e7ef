//! `redis-lock run` beside flock(1), in the same scenes. README shows what is found here.

#![cfg(target_os = "linux")]

mod support;

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use testbed::{Program, Server, eventually};

use support::scene::Scene;
use support::terminal::{CTRL_Z, Terminal};
use support::{Running, SECOND};

/// How long the next holder may take where the lock is given back. The lease lasts six seconds: all scenes
/// run at once, and a lease that a slow machine loses makes another row.
const PATIENCE: Duration = Duration::from_secs(15);

#[derive(Clone, Copy)]
enum Tool {
    Flock,
    RedisLock,
}

/// What happens to the tool that holds the lock.
#[derive(Clone, Copy)]
enum Event {
    Nothing,
    Signal(Signal),
}

use Event::{Nothing, Signal as Sent};

/// Each with what the table calls it, and the script that runs under the lock.
const SCENES: [(&str, &str, Event); 10] = [
    ("the script ends, a background job of it runs on", "sh stubborn & exit", Nothing),
    ("the script ends, a daemon (`setsid`) of it runs on", "setsid sh stubborn & exit", Nothing),
    ("TERM to the tool", "sh worker; true", Sent(Signal::TERM)),
    ("INT to the tool", "sh worker; true", Sent(Signal::INT)),
    ("HUP to the tool", "sh worker; true", Sent(Signal::HUP)),
    ("TERM to the tool, the job is a pipe", "sh worker | cat", Sent(Signal::TERM)),
    ("TERM to the tool, the job ignores it", "sh stubborn; true", Sent(Signal::TERM)),
    ("KILL to the tool, the job is its own process", "exec sh stubborn", Sent(Signal::KILL)),
    (
        "KILL to the tool, the job is a process of its script",
        "sh stubborn; true",
        Sent(Signal::KILL),
    ),
    ("TSTP to the tool", "sh worker; true", Sent(Signal::TSTP)),
];

impl Tool {
    fn words(self) -> Vec<&'static str> {
        let program = env!("CARGO_BIN_EXE_redis-lock");
        match self {
            Self::Flock => vec!["flock", "lock"],
            Self::RedisLock => {
                vec![program, "run", "job", "--ttl", "6s", "--grace", "700ms", "--"]
            }
        }
    }

    fn command(self, server: &Server, scene: &Scene, script: &str) -> Command {
        let words = self.words();
        let mut command = support::command_of(words[0], server);
        command.args(&words[1..]).args(["sh", "-c", script]);
        scene.prepare(&mut command);
        command
    }

    fn next(self, server: &Server, scene: &Scene) -> Program {
        Program::spawn(self.command(server, scene, "echo B >> \"$LOG\""))
    }

    /// What comes of a scene.
    fn plays(self, script: &str, event: Event) -> &'static str {
        let (server, scene) = (Server::start(), Scene::new());
        let running = Running::spawn(self.command(&server, &scene, script));
        scene.works();
        let _next = self.next(&server, &scene);
        if let Event::Signal(signal) = event {
            running.signal(signal);
        }
        outcome(&scene)
    }

    fn reads_the_terminal(self) -> &'static str {
        let (server, scene) = (Server::start(), Scene::new());
        let mut terminal = Terminal::open(&server, &scene);
        scene.write(
            "read",
            "echo A >> \"$LOG\"; read word < /dev/tty; echo \"got $word\" >> \"$LOG\"",
        );
        terminal.line(&format!("{} sh read < /dev/null", self.words().join(" ")));
        eventually(60 * SECOND, "it runs", || scene.log().contains('A'));
        terminal.line("it");
        eventually(60 * SECOND, "it has read", || scene.log().contains("got it"));
        "the job reads it"
    }

    fn ctrl_z(self) -> &'static str {
        let (server, scene) = (Server::start(), Scene::new());
        let mut terminal = Terminal::open(&server, &scene);
        terminal.line(&format!("{} sh worker", self.words().join(" ")));
        scene.works();
        let _next = self.next(&server, &scene);
        terminal.press(CTRL_Z);
        outcome(&scene)
    }

    fn with_sigchld_ignored(self) -> &'static str {
        let (server, scene) = (Server::start(), Scene::new());
        scene.write(
            "deaf",
            "import os, signal, sys\n\
             signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n\
             os.execvp(sys.argv[1], sys.argv[1:])\n",
        );
        let mut command = support::command_of("python3", &server);
        command.arg("deaf").args(self.words()).args(["sh", "-c", "exit 7"]);
        scene.prepare(&mut command);
        match support::code(&Program::spawn(command).output("")) {
            7 => "its status is passed on",
            _ => "its status is lost",
        }
    }
}

/// What the job and the next holder have written.
fn outcome(scene: &Scene) -> &'static str {
    let start = Instant::now();
    while !scene.log().contains('B') && start.elapsed() < PATIENCE {
        thread::sleep(Duration::from_millis(20));
    }
    let before = scene.log();
    let has_grown = || scene.log() != before;
    eventually(60 * SECOND, "the job works or has stopped", || has_grown() || scene.is_at_rest());
    match (has_grown(), before.contains('B')) {
        (true, true) => "the job runs on, **the next one starts beside it**",
        (true, false) => "the job runs on and keeps the lock",
        (false, true) => "the job stops, then the next one starts",
        (false, false) => "the job stops and keeps the lock",
    }
}

#[test]
fn the_table_shows_what_both_tools_do() {
    if !Command::new("flock").arg("--version").output().is_ok_and(|it| it.status.success()) {
        testbed::skip!("flock is not installed");
    }
    type Play = Box<dyn Fn(Tool) -> &'static str + Send + Sync>;
    let scenes = SCENES.map(|(name, script, event)| {
        (name, Box::new(move |tool: Tool| tool.plays(script, event)) as Play)
    });
    let others: [(&str, Play); 3] = [
        ("Ctrl-Z in a terminal", Box::new(Tool::ctrl_z)),
        ("the job reads `/dev/tty`, its input is a file", Box::new(Tool::reads_the_terminal)),
        ("the parent of the tool ignores SIGCHLD", Box::new(Tool::with_sigchld_ignored)),
    ];
    let rows = thread::scope(|scope| {
        let plays: Vec<_> = scenes
            .into_iter()
            .chain(others)
            .map(|(name, play)| {
                scope.spawn(move || {
                    let [flock, ours] = [Tool::Flock, Tool::RedisLock].map(&play);
                    format!("| {name} | {flock} | {ours} |")
                })
            })
            .collect();
        plays.into_iter().map(|play| play.join().unwrap()).collect::<Vec<_>>()
    });
    let readme = include_str!("../README.md");
    let missing = rows.iter().any(|row| !readme.contains(row.as_str()));
    assert!(!missing, "README does not say what was found:\n{}", rows.join("\n"));
}
