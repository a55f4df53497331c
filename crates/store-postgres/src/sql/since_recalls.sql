-- Plan: a range of recall_version.
select subscription, delivery, revival from recall where version > $1 order by version, no
