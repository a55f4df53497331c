//! `cargo run -p posthorn-proof --release --bin fuzz -- [--seconds N] [--seed S] [--target NAME]`
//!
//! Runs every target, or one, for a while each, and ends with 1 when one of them does not hold. The
//! input is written to a file; `--input FILE --target NAME` gives it to the target again.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use posthorn_proof::fuzz::{Broken, Limits, TARGETS, Target, corpus, run};

#[derive(Parser)]
#[command(about = "Gives every reader of the product what strangers may write")]
struct Args {
    /// How long for each target.
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// Where mutations are drawn from; the same number gives the same inputs.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only this target.
    #[arg(long)]
    target: Option<String>,
    /// Only this input, once.
    #[arg(long, requires = "target")]
    input: Option<PathBuf>,
    /// Where inputs that break something are written.
    #[arg(long, default_value = "fuzz-failures")]
    save: PathBuf,
    /// Names the targets.
    #[arg(long)]
    list: bool,
}

#[expect(clippy::print_stdout, reason = "this is the data the command exists for")]
fn main() -> ExitCode {
    let args = Args::parse();
    let wanted = |target: &&Target| args.target.as_ref().is_none_or(|name| name == target.name);
    let targets: Vec<&Target> = TARGETS.iter().filter(wanted).collect();
    if targets.is_empty() || args.list {
        for target in &TARGETS {
            println!("{:<20} {}", target.name, target.what);
        }
        return ExitCode::from(if args.list { 0 } else { 2 });
    }
    if let Some(file) = &args.input {
        let input = std::fs::read(file).expect("the input can be read");
        for target in targets {
            println!("{}: accepted: {}", target.name, (target.run)(&input));
        }
        return ExitCode::SUCCESS;
    }
    // What broke is said once, below.
    std::panic::set_hook(Box::new(|_| {}));
    let mut broken = 0;
    for target in targets {
        let seeds = corpus(target).expect("the corpus can be read");
        let limits = Limits { mutations: u64::MAX, time: Duration::from_secs(args.seconds) };
        let began = Instant::now();
        match run(target, &seeds, args.seed, limits) {
            Ok(ran) => println!(
                "{:<20} ok  {:>10} inputs  {:>8.0}/s  {:>5.1} % accepted",
                target.name,
                ran.inputs,
                ran.inputs as f64 / began.elapsed().as_secs_f64(),
                100.0 * ran.accepted as f64 / ran.inputs as f64
            ),
            Err(found) => {
                broken += 1;
                report(target, &args, &found);
            }
        }
    }
    ExitCode::from(u8::from(broken > 0))
}

#[expect(clippy::print_stdout, reason = "this is the data the command exists for")]
fn report(target: &Target, args: &Args, found: &Broken) {
    let file = args.save.join(format!("{}-{}-{}", target.name, args.seed, found.mutation));
    let saved =
        std::fs::create_dir_all(&args.save).and_then(|()| std::fs::write(&file, &found.input));
    println!("{:<20} BROKEN  seed {}, mutation {}", target.name, args.seed, found.mutation);
    println!("    {}", found.said);
    println!("    {:?}", String::from_utf8_lossy(&found.input));
    match saved {
        Ok(()) => println!(
            "    cargo run -p posthorn-proof --release --bin fuzz -- --target {} --input {}",
            target.name,
            file.display()
        ),
        Err(error) => println!("    the input could not be saved: {error}"),
    }
}
