-- The files of the table `opened` whose rows no board can be made from, and why. All rows of a run name the same entry, task and
-- seed, and a file has as many runs as footers: a run file has one.
--
-- Parameters: $max_text, $max_lengths; $paths, and in the same order $runs, how many footers each file has.

with expected as (
    select unnest($paths) as path, unnest($runs) as footers
),

within_runs as (
    select
        path,
        case
            when bool_or(
                run_id is null or entry is null or task is null or family is null or task_version is null or protocol is null
                or protocol_version is null or changes is null or plugins is null or seed is null or weights is null
                or metric is null or stepless
            ) then 'it has rows without a value in a column that must have one'
            when bool_or(
                len(map_keys(changes)) <> len(list_distinct(map_keys(changes)))
                or (cardinality(plugins) > 1 and len(map_keys(plugins)) <> len(list_distinct(map_keys(plugins))))
            ) then 'it has a changed setting or a package twice in one row'
            when
                min(entry) <> max(entry) or min(task) <> max(task) or min(family) <> max(family)
                or min(seed) <> max(seed) or min(task_version) <> max(task_version) or min(protocol) <> max(protocol)
                or min(protocol_version) <> max(protocol_version)
            then 'its rows of one run name several entries, tasks, protocols or seeds'
            when
                max(length(entry || task || family || protocol || weights || metric || changes::varchar || plugins::varchar))
                > $max_text
            then 'it has a name or a setting of more than ' || $max_text || ' characters'
            when bool_or(regexp_matches(
                run_id || entry || task || family || protocol || weights || metric || changes::varchar || plugins::varchar,
                '[\p{Cc}\p{Cf}\x{2028}\x{2029}]'
            ))
            then 'it has a character in a name or a setting that cannot be shown, such as an end of line'
            when max(largest) > 1e100 then 'it has a value beyond 1e100'
            when max(shown) > $max_lengths
            then 'it has more than ' || $max_lengths || ' lengths for boards'
        end as reason
    from opened
    group by path, run_id
),

counted as (
    select
        path,
        case
            when footers = 1 then 'its rows are of several runs, and a run file has one'
            else 'its rows are of ' || count(distinct run_id) || ' runs, and its footers of ' || footers
        end as reason
    from opened
    join expected using (path)
    group by path, footers
    having count(distinct run_id) <> footers
)

select path, min(reason) as reason
from (
    from within_runs
    union all
    from counted
)
where reason is not null
group by path
order by path
