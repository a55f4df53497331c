//! Drives the real program, as an operator would.

mod admission;
mod authority;
mod caller;
mod canary;
mod commands;
mod configuration;
mod documents;
mod efgs;
mod efgs_nodes;
mod efgs_stage;
mod harness;
mod mutual_tls;
mod name_server;
mod pca_hub;
mod pca_hub_nodes;
mod postgres;
mod rotation;
mod serving;
mod tls;
mod token_canary;
mod verify;
