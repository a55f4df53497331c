//! What is said while a benchmark runs: on stderr, with a bar where that is a terminal.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar is drawn at most this often: more is only flicker.
const FRAMES_PER_SECOND: u8 = 10;
/// How often a wait moves its bar.
const TICK: Duration = Duration::from_millis(100);

/// Tells how far it is.
#[expect(clippy::print_stderr, reason = "this is what the module is for")]
pub(crate) fn say(text: &str) {
    eprintln!("{text}");
}

/// A bar towards a number. It hides itself where there is no terminal.
pub(crate) fn bar(total: u64, what: &'static str, form: &'static str) -> ProgressBar {
    let target = ProgressDrawTarget::stderr_with_hz(FRAMES_PER_SECOND);
    let bar = ProgressBar::with_draw_target(Some(total), target);
    if let Ok(style) = ProgressStyle::with_template(form) {
        bar.set_style(style);
    }
    bar.set_message(what);
    bar
}

/// Waits while the load runs.
pub(crate) async fn wait(time: Duration) {
    let bar = bar(time.as_millis() as u64, "  load is running", "{msg} {wide_bar} {elapsed}");
    let began = Instant::now();
    while began.elapsed() < time {
        tokio::time::sleep(TICK.min(time.saturating_sub(began.elapsed()))).await;
        bar.set_position(began.elapsed().as_millis() as u64);
    }
    bar.finish_and_clear();
}
