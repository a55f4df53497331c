//! Python and Node.js as partners of a test: their packages are installed once, by name and exact
//! version, into a folder under `target`, and one process answers all questions of a test.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use posthorn_sealing::encoding::Encoding;
use posthorn_sealing::hash::fingerprint;
use serde_json::Value;

/// A language that has libraries of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Language {
    Python,
    JavaScript,
}

impl Language {
    /// Puts the questions to it, in one process, and returns its answers in order. Without the language
    /// there is no answer, and the test fails.
    pub(crate) fn ask(self, questions: &[Value]) -> Vec<Value> {
        let mut command = self.command();
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|e| panic!("{command:?} does not start: {e}"));
        let mut stdin = child.stdin.take().unwrap();
        let lines: String = questions.iter().map(|question| format!("{question}\n")).collect();
        // From another thread: neither side may wait for the other to read.
        let writer = thread::spawn(move || stdin.write_all(lines.as_bytes()));
        let answers: Vec<Value> = BufReader::new(child.stdout.take().unwrap())
            .lines()
            .map(|line| serde_json::from_str(&line.unwrap()).unwrap())
            .collect();
        assert!(child.wait().unwrap().success(), "{self:?} ended badly; see above");
        writer.join().unwrap().unwrap();
        assert_eq!(answers.len(), questions.len(), "{self:?} did not answer every question");
        for (answer, question) in answers.iter().zip(questions) {
            assert!(answer.get("error").is_none(), "{self:?}: {answer} to {question:.300}");
        }
        answers
    }

    fn command(self) -> Command {
        let packages = self.packages();
        match self {
            Self::Python => {
                let mut command = Command::new("python3");
                command.arg("-B").arg(scripts().join("check.py")).env("PYTHONPATH", packages);
                command
            }
            Self::JavaScript => {
                let mut command = Command::new("node");
                command.arg(scripts().join("check.mjs")).arg(packages);
                command
            }
        }
    }

    /// The folder with its packages, made at the first call. Tests run in processes of their own,
    /// so that a lock on a file decides who installs.
    fn packages(self) -> PathBuf {
        let (tool, list) = match self {
            Self::Python => ("python3", "requirements.txt"),
            Self::JavaScript => ("node", "package.json"),
        };
        let version = run(Command::new(tool).arg("--version"));
        let wanted = fs::read(scripts().join(list)).unwrap();
        let name = Encoding::Hex.encode(&fingerprint(&[version.as_bytes(), &wanted])[..8]);
        let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join("other-languages");
        fs::create_dir_all(&root).unwrap();
        let lock = fs::File::create(root.join(format!("{tool}.lock"))).unwrap();
        lock.lock().unwrap();
        let place = root.join(format!("{tool}-{name}"));
        if !place.exists() {
            let half = root.join(format!("{tool}-{name}.half"));
            if half.exists() {
                fs::remove_dir_all(&half).unwrap();
            }
            fs::create_dir_all(&half).unwrap();
            self.install(&half);
            fs::rename(&half, &place).unwrap();
        }
        place
    }

    fn install(self, place: &Path) {
        match self {
            Self::Python => {
                let list = scripts().join("requirements.txt");
                let quiet = ["--quiet", "--disable-pip-version-check", "--no-input"];
                run(Command::new("python3")
                    .args(["-m", "pip", "install"])
                    .args(quiet)
                    // One package is there as a source only; it is plain Python.
                    .args(["--only-binary", ":all:", "--no-binary", "http_ece", "--target"])
                    .args([place.as_os_str(), OsStr::new("-r"), list.as_os_str()]));
            }
            Self::JavaScript => {
                fs::copy(scripts().join("package.json"), place.join("package.json")).unwrap();
                let flags = ["--no-audit", "--no-fund", "--no-package-lock", "--ignore-scripts"];
                run(Command::new("npm").arg("install").args(flags).arg("--prefix").arg(place));
            }
        }
    }
}

fn scripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/other_languages")
}

/// Runs a tool to its end; what it prints. A tool that is missing or fails is a failed test.
fn run(command: &mut Command) -> String {
    let tool = command.get_program().to_string_lossy().into_owned();
    let output = command.output().unwrap_or_else(|e| {
        panic!(
            "{tool} cannot be run ({e}), but signatures are compared with libraries of other \
             languages here. `./test` installs what is needed: python3 with pip, node with npm"
        )
    });
    assert!(
        output.status.success(),
        "{command:?} failed: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}
