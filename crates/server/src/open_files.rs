//! How many connections the system lets this process have.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracing::{debug, info};

use crate::config::Config;

/// Open files besides connections: the store's, logs, the reserve of the listener, and some more.
const OTHER_FILES: usize = 64 + RESERVE;
/// Connections that are answered, though there is no place for them, when they ask for health,
/// readiness or metrics.
pub const RESERVE: usize = 64;
/// Connections of the admin listener, which only operators and their probes know.
pub const ADMIN_CONNECTIONS: usize = 256;
/// The part of the listener's connections that sockets of agents get when there are too few.
const SOCKETS: (usize, usize) = (3, 4);

/// Asks for as many open files as the connections of the configuration need, as far as the system lets
/// us, and lowers the limits of connections to what there is. An attempt that fails because we have no
/// descriptor left would be charged to the receiver.
pub fn fit(config: &mut Config) {
    let Some(limit) = raise(needed(config)) else { return };
    if fit_to(config, limit) {
        info!(
            limit,
            server.connections = config.server.limits.connections,
            push.connections = config.push.as_ref().map(|push| push.connections),
            egress.connections = config.egress.connections,
            "connections are limited by the system's limit of open files; raise it with `ulimit \
             -n` or LimitNOFILE="
        );
    }
}

/// The limit of open files, and each limit of connections: its key, what it says, and what is in effect.
pub struct InEffect {
    /// Open files; `None` when the system has no limit.
    pub files: Option<usize>,
    /// The limits of connections.
    pub connections: Vec<(&'static str, usize, usize)>,
}

/// What a start with this configuration would have, here.
pub fn in_effect(config: &mut Config) -> InEffect {
    let before = connections(config);
    let files = raise(needed(config));
    if let Some(limit) = files {
        fit_to(config, limit);
    }
    let pairs = before.into_iter().zip(connections(config));
    InEffect {
        files,
        connections: pairs.map(|((key, said), (_, held))| (key, said, held)).collect(),
    }
}

fn connections(config: &Config) -> Vec<(&'static str, usize)> {
    let own = [
        ("server.connections", config.server.limits.connections),
        ("egress.connections", config.egress.connections),
    ];
    let agents = config.push.as_ref().map(|push| ("push.connections", push.connections));
    let nodes = config.push.as_ref().filter(|push| push.internal.listen.is_some());
    let nodes = nodes.map(|push| ("push.internal", push.internal.connections));
    own.into_iter().chain(agents).chain(nodes).collect()
}

fn needed(config: &Config) -> usize {
    // Other nodes call, and are called.
    let nodes = config.push.as_ref().map_or(0, |push| 2 * push.internal.connections);
    let sockets = config.push.as_ref().map_or(0, |push| push.connections);
    let other = admin(config) + OTHER_FILES;
    config.server.limits.connections + sockets + config.egress.connections + nodes + other
}

/// Connections of the admin listener, with its reserve.
fn admin(config: &Config) -> usize {
    config.server.admin_listen.map_or(0, |_| ADMIN_CONNECTIONS + RESERVE)
}

/// Raises the limit that holds, which is often low, towards the one that this process may choose.
/// Gives what holds then; `None` when there is no limit.
fn raise(needed: usize) -> Option<usize> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let wanted = u64::try_from(needed).unwrap_or(u64::MAX);
    let wanted = maximum.map_or(wanted, |maximum| wanted.min(maximum));
    let mut held = current?;
    if wanted > held {
        match setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum }) {
            Ok(()) => held = wanted,
            Err(e) => debug!(error = %e, wanted, "the limit of open files cannot be raised"),
        }
    }
    Some(usize::try_from(held).unwrap_or(usize::MAX))
}

/// Says whether anything had to be lowered. Other nodes get an eighth, receivers half of the rest, and
/// agents three quarters of what is left then, unless they need less.
fn fit_to(config: &mut Config, limit: usize) -> bool {
    if needed(config) <= limit {
        return false;
    }
    let mut room = limit.saturating_sub(OTHER_FILES + admin(config)).max(16);
    let (server, egress) = (&mut config.server.limits.connections, &mut config.egress.connections);
    if let Some(internal) = config.push.as_mut().map(|push| &mut push.internal) {
        internal.connections = internal.connections.min(room / 16);
        room -= 2 * internal.connections;
    }
    *egress = (*egress).min(room / 2);
    room -= *egress;
    if let Some(push) = &mut config.push {
        push.connections = push.connections.min(room * SOCKETS.0 / SOCKETS.1);
        room -= push.connections;
    }
    *server = (*server).min(room);
    true
}

#[cfg(test)]
mod tests {
    use crate::config::{FlagValue, Inputs, load};

    use super::*;

    /// Connections of clients and agents, to receivers, and of other nodes.
    fn fitted(limit: usize, keys: &[(&str, &str)]) -> (usize, usize, usize, Option<usize>) {
        let flags = keys.iter().map(|(key, text)| FlagValue {
            flag: format!("--set {key}"),
            key: (*key).to_owned(),
            text: (*text).to_owned(),
        });
        let inputs = Inputs { flags: flags.collect(), ..Inputs::default() };
        let mut config = load(&inputs).expect("valid").config;
        fit_to(&mut config, limit);
        let agents = config.push.as_ref().map_or(0, |push| push.connections);
        let nodes = config.push.map(|push| push.internal.connections).filter(|nodes| *nodes > 0);
        (config.server.limits.connections, agents, config.egress.connections, nodes)
    }

    #[test]
    fn all_find_room_in_the_open_files() {
        let push = ("push.enabled", "true");
        let nodes = ("push.internal.listen", "127.0.0.1:0");
        assert_eq!(fitted(100_000, &[]), (10_000, 0, 2_000, None));
        assert_eq!(fitted(100_000, &[push]), (10_000, 15_000, 2_000, None));
        assert_eq!(fitted(100_000, &[push, nodes]), (10_000, 15_000, 2_000, Some(4_096)));
        assert_eq!(fitted(12_128, &[]), (10_000, 0, 2_000, None));
        // Ten thousand idle agents, and clients beside them.
        assert_eq!(fitted(16_384, &[push]), (3_564, 10_692, 2_000, None));
        assert_eq!(fitted(1_024, &[push]), (112, 336, 448, None));
        let admin = ("server.admin_listen", "127.0.0.1:0");
        assert_eq!(fitted(1_024, &[admin]), (288, 0, 288, None));
        for limit in [0, 16, 256, 1_024, 4_096, 20_000] {
            let (server, agents, egress, nodes) = fitted(limit, &[push, nodes]);
            let nodes = nodes.expect("listens");
            assert!(server > 0 && agents > 0 && egress > 0 && nodes > 0, "{limit}");
            let all = server + agents + egress + 2 * nodes + OTHER_FILES;
            assert!(limit < 256 || all <= limit, "{limit}");
        }
    }

    #[test]
    fn the_limit_of_open_files_is_raised_as_far_as_it_may() {
        let before = getrlimit(Resource::Nofile);
        let Some(held) = before.current else { return };
        assert_eq!(raise(0), usize::try_from(held).ok(), "it is never lowered");
        let more = usize::try_from(held + 1).expect("fits");
        let allowed = before.maximum.is_none_or(|maximum| maximum > held);
        assert_eq!(raise(more).is_some_and(|held| held >= more), allowed);
    }
}
