//! The engine on the model store, with scripted receivers and a virtual clock.

mod delivery;
mod house;
mod limits;
mod management;
mod nodes;
