//! The engine on the model store, with scripted receivers and a virtual clock.

mod callbacks;
mod certificates;
mod clock;
mod delivery;
mod envelope;
mod filter_test;
mod handshake;
mod headers;
mod house;
mod limits;
mod management;
mod matching;
mod nodes;
mod notificaties;
mod outcomes;
mod pca_hub;
mod pca_hub_locks;
mod profiles;
mod push;
mod push_destinations;
mod push_house;
mod push_services;
mod signing;
mod tenants;
mod token_server;
mod tokens;
