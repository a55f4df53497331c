//! The engine on the model store, with scripted receivers and a virtual clock.

mod certificates;
mod delivery;
mod headers;
mod house;
mod limits;
mod management;
mod nodes;
mod notificaties;
mod profiles;
mod signing;
mod tenants;
mod token_server;
mod tokens;
