-- Messages with a topic are read before the others.
create index push_message_topics on push_message (agent, seq) where topic is not null;
