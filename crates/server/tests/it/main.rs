//! Drives the real program, as an operator would.

mod admission;
mod authority;
mod bench_push;
mod caller;
mod canary;
mod cedros;
mod cedros_world;
mod commands;
mod configuration;
mod documents;
mod efgs;
mod efgs_nodes;
mod efgs_stage;
mod harness;
#[expect(clippy::unwrap_used, reason = "it is a file of another crate's tests, which may")]
#[path = "../../../sealing/tests/it/interpreter.rs"]
mod interpreter;
mod listen_push;
mod mutual_tls;
mod name_server;
mod newcomers;
mod notificaties;
mod notificaties_access;
mod notificaties_delivery;
mod notificaties_settings;
mod notificaties_world;
mod pca_hub;
mod pca_hub_nodes;
mod postgres;
mod push;
mod push_destination;
mod push_ends;
mod push_firefox;
mod push_life;
mod push_publish;
mod push_senders;
mod push_surface;
mod push_world;
mod rotation;
mod schedules;
mod serving;
mod tls;
mod token_canary;
mod verify;
