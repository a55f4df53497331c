//! How many connections the system lets this process have.

use tracing::info;

use crate::config::Config;

/// Open files besides connections: the store's, logs, and a reserve.
const OTHER_FILES: usize = 64;

/// Lowers the limits of connections to what the system allows this process to open. An attempt that
/// fails because we have no descriptor left would be charged to the receiver.
pub fn fit(config: &mut Config) {
    let Ok(limits) = std::fs::read_to_string("/proc/self/limits") else { return };
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"));
    let soft = line.and_then(|line| line.split_whitespace().next()?.parse::<usize>().ok());
    let Some(limit) = soft else { return };
    if fit_to(config, limit) {
        info!(
            limit,
            server.connections = config.server.connections,
            egress.connections = config.egress.connections_max,
            "connections are limited to the open files the system allows; raise that with \
             `ulimit -n` or LimitNOFILE="
        );
    }
}

/// Says whether anything had to be lowered. Other nodes get an eighth, receivers half of the rest,
/// unless they need less.
fn fit_to(config: &mut Config, limit: usize) -> bool {
    let (server, egress) = (&mut config.server.connections, &mut config.egress.connections_max);
    let internal = config.push.as_mut().and_then(|push| push.internal.as_mut());
    let mut none = 0;
    // They call, and are called.
    let nodes = internal.map_or(&mut none, |internal| &mut internal.connections);
    if *server + *egress + 2 * *nodes + OTHER_FILES <= limit {
        return false;
    }
    let room = limit.saturating_sub(OTHER_FILES).max(16);
    *nodes = (*nodes).min(room / 16);
    let room = room - 2 * *nodes;
    *egress = (*egress).min(room / 2);
    *server = (*server).min(room - *egress);
    true
}

#[cfg(test)]
mod tests {
    use crate::config::{FlagValue, Inputs, load};

    use super::*;

    /// Connections of clients, to receivers, and of other nodes.
    fn fitted(limit: usize, keys: &[(&str, &str)]) -> (usize, usize, Option<usize>) {
        let flags = keys.iter().map(|(key, text)| FlagValue {
            flag: format!("--set {key}"),
            key: (*key).to_owned(),
            text: (*text).to_owned(),
        });
        let inputs = Inputs { flags: flags.collect(), ..Inputs::default() };
        let mut config = load(&inputs).expect("valid").config;
        fit_to(&mut config, limit);
        let nodes = config.push.and_then(|push| push.internal).map(|own| own.connections);
        (config.server.connections, config.egress.connections_max, nodes)
    }

    #[test]
    fn all_find_room_in_the_open_files() {
        let push = ("push.enabled", "true");
        let nodes = ("push.internal.listen", "127.0.0.1:0");
        assert_eq!(fitted(100_000, &[]), (10_000, 2_000, None));
        assert_eq!(fitted(100_000, &[push]), (20_000, 2_000, None));
        assert_eq!(fitted(100_000, &[push, nodes]), (20_000, 2_000, Some(1_024)));
        assert_eq!(fitted(12_064, &[]), (10_000, 2_000, None));
        // Ten thousand idle agents, and clients beside them.
        assert_eq!(fitted(16_384, &[push]), (14_320, 2_000, None));
        assert_eq!(fitted(1_024, &[push]), (480, 480, None));
        for limit in [0, 16, 256, 1_024, 4_096, 20_000] {
            let (server, egress, nodes) = fitted(limit, &[push, nodes]);
            let nodes = nodes.expect("listens");
            assert!(server > 0 && egress > 0 && nodes > 0, "{limit}");
            assert!(limit < 256 || server + egress + 2 * nodes + OTHER_FILES <= limit, "{limit}");
        }
    }
}
