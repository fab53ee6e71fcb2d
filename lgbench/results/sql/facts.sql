-- What is published about each task, for queries.
create table facts (
    task text,
    kind text,
    chomsky text,
    star_free boolean,
    c_rasp boolean,
    c_rasp_positions boolean,
    "group" text,
    sources text[]
);
