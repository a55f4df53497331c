select key, used_at from key_use
