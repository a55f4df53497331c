-- Messages with a topic are read before the others. Ends in seq by itself.
create index push_message_topics on push_message (agent) where topic is not null;
