-- coordlock's schema for PostgreSQL 13 and later. A role that has USAGE on it may lock.
--
-- Requests are procedures: each one ends its own transaction, and says so to those that wait in a
-- second one. So a request is one statement, which every pooler lets through. What they do is in
-- functions with a pinned search_path, which the owner of the schema runs; a procedure that commits
-- can have neither.

CREATE SCHEMA coordlock;
SET LOCAL search_path = coordlock, pg_catalog, pg_temp; -- of this file; it is one transaction

-- How often the data may have gone back: another timeline or another cluster begins a new epoch, in
-- which earlier sessions have ended, and nothing is granted for the `pause`.
CREATE TABLE epoch (
    number integer PRIMARY KEY CHECK (number BETWEEN 1 AND 16777215),
    timeline text NOT NULL COLLATE "C",
    since timestamptz NOT NULL,
    pause interval NOT NULL
);

-- The lower 39 bits of all tokens. A sequence goes on after a crash, and the epoch after a failover.
CREATE SEQUENCE token MAXVALUE 549755813887 NO CYCLE;

-- A session has ended when a client that waits saw no other `beat` for its `ttl`. `expires_at` is for
-- those that nobody waits for. Neither is indexed: heartbeats must meet no check of a foreign key.
CREATE TABLE session (
    id text PRIMARY KEY COLLATE "C", -- the client's channel, a minus, and a number
    epoch integer NOT NULL,
    beat bigint NOT NULL DEFAULT 0,
    ttl interval NOT NULL,
    expires_at timestamptz NOT NULL,
    ended boolean NOT NULL DEFAULT false -- its contenders leave; a transaction may keep some of them
) WITH (fillfactor = 50);

CREATE TABLE queue (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    root text NOT NULL COLLATE "C",
    name text NOT NULL COLLATE "C",
    floor bigint NOT NULL DEFAULT 0, -- no contender has a smaller token: what is dead is not read
    UNIQUE (root, name)
) WITH (fillfactor = 50);

CREATE TABLE contender (
    queue bigint NOT NULL REFERENCES queue,
    token bigint NOT NULL,
    session text NOT NULL COLLATE "C" REFERENCES session,
    id text NOT NULL COLLATE "C",
    claim text NOT NULL COLLATE "C",
    owner text NOT NULL,
    value bytea NOT NULL,
    version bigint NOT NULL DEFAULT 1,
    PRIMARY KEY (queue, token),
    UNIQUE (session, id)
) WITH (fillfactor = 50);
CREATE INDEX ON contender (queue) WHERE claim = 'convertible';

CREATE TABLE data (
    root text COLLATE "C",
    folder text COLLATE "C",
    name text COLLATE "C",
    value bytea,
    version bigint NOT NULL, -- 0 inside of a write alone
    PRIMARY KEY (root, folder, name)
) WITH (fillfactor = 50);

-- Who wants to know when a queue, key or folder changes. Clients renew it, also after a crash.
CREATE UNLOGGED TABLE follower (
    root text COLLATE "C",
    place text COLLATE "C",
    channel text COLLATE "C",
    until timestamptz NOT NULL,
    PRIMARY KEY (root, place, channel)
) WITH (fillfactor = 50);

CREATE FUNCTION schema_version() RETURNS integer LANGUAGE sql IMMUTABLE AS 'SELECT 1';

-- Names the history of the data: the cluster, the timeline that is written now, and the table, which a
-- restored dump makes anew. The control file would name the timeline of the last checkpoint.
CREATE FUNCTION _timeline() RETURNS text LANGUAGE sql VOLATILE AS $$
    SELECT concat_ws('/', system_identifier, left(pg_walfile_name(pg_current_wal_insert_lsn()), 8),
                     'coordlock.epoch'::regclass::oid)
    FROM pg_control_system()
$$;

-- Minutes since 2026. Epochs are dated, for a number that only counts on comes again when another copy
-- of the same data is promoted or restored. Two copies can't both grant in the epochs of one minute,
-- since the first had to pause longer.
CREATE FUNCTION _minute() RETURNS integer LANGUAGE sql VOLATILE AS $$
    SELECT ((extract(epoch FROM clock_timestamp()) - 1767225600) / 60)::integer
$$;

-- For the owner after a restored backup, and for `_epoch`.
CREATE FUNCTION new_epoch() RETURNS void LANGUAGE sql AS $$
    INSERT INTO epoch
    SELECT greatest(number + 1, _minute()), _timeline(), clock_timestamp(), pause FROM epoch
    ORDER BY number DESC LIMIT 1 ON CONFLICT DO NOTHING
$$;
REVOKE EXECUTE ON FUNCTION new_epoch() FROM PUBLIC;

-- The epoch; a new one if another timeline is written. For `quiet` seconds nothing is granted and no
-- session ended, because earlier holders may not know.
CREATE FUNCTION _epoch(OUT number integer, OUT pause interval, OUT quiet double precision) LANGUAGE plpgsql AS $$
DECLARE
    latest epoch;
    now_at constant text := _timeline();
BEGIN
    LOOP
        SELECT * INTO latest FROM epoch e ORDER BY e.number DESC LIMIT 1;
        EXIT WHEN latest.timeline = now_at;
        PERFORM new_epoch();
    END LOOP;
    IF latest.since > clock_timestamp() THEN -- it was set back: the pause counts from now on
        UPDATE epoch e SET since = clock_timestamp() WHERE e.number = latest.number RETURNING * INTO latest;
    END IF;
    number := latest.number;
    pause := latest.pause;
    quiet := extract(epoch FROM latest.since + latest.pause - clock_timestamp());
END $$;

-- Whether nothing is granted for now: earlier holders may not know yet what they have lost.
CREATE FUNCTION _is_quiet() RETURNS boolean LANGUAGE sql VOLATILE AS $$
    SELECT timeline <> _timeline() OR since + pause > clock_timestamp() FROM epoch ORDER BY number DESC LIMIT 1
$$;

-- The contenders of a queue up to a token in ascending order, behind how many others they stand.
-- Of those before it, the `window` nearest, or without one those of no `compatible` claim.
CREATE FUNCTION _part(of_queue queue, upto bigint, "window" integer, compatible text[])
RETURNS json LANGUAGE plpgsql STABLE AS $$
DECLARE
    found contender[];
    omitted bigint := 0;
BEGIN
    SELECT array_agg(near ORDER BY token) INTO found FROM (
        SELECT * FROM contender c
        WHERE c.queue = of_queue.id AND c.token BETWEEN of_queue.floor AND upto
          AND (c.token = upto OR claim <> ALL (coalesce(compatible, '{}')))
        ORDER BY token DESC LIMIT "window" + 1
    ) AS near;
    IF cardinality(found) > "window" THEN
        SELECT count(*) INTO omitted FROM contender c
        WHERE c.queue = of_queue.id AND c.token >= of_queue.floor AND c.token < found[1].token;
    END IF;
    RETURN json_build_array(omitted, (
        SELECT coalesce(json_agg(json_build_array(id, token, claim, session, owner, encode(value, 'hex'), version)), '[]')
        FROM unnest(found)
    ));
END $$;

-- Those of these contenders that are there. Each is found by the index on session and id, which a join
-- or a condition with arrays would read whole, or not use, while the table has no statistics.
CREATE FUNCTION _find(sessions text[], ids text[]) RETURNS SETOF contender LANGUAGE sql STABLE AS $$
    SELECT c.* FROM unnest(sessions) AS s, unnest(ids) AS i, LATERAL (
        SELECT * FROM contender WHERE session = s AND id = i OFFSET 0
    ) AS c
$$;

-- Remove contenders. Never waits: what another transaction has locked stays.
CREATE FUNCTION _remove(sessions text[], ids text[], of_token bigint) RETURNS contender[]
LANGUAGE sql VOLATILE AS $$
    WITH here AS (
        SELECT h.* FROM unnest(sessions) AS s, unnest(ids) AS i, LATERAL (
            SELECT ctid AS at FROM contender
            WHERE session = s AND id = i AND token = coalesce(of_token, token) FOR UPDATE SKIP LOCKED
        ) AS h
    ), gone AS (
        DELETE FROM contender c WHERE c.ctid = ANY (ARRAY(SELECT at FROM here)) RETURNING c
    )
    SELECT coalesce(array_agg(c), '{}') FROM gone
$$;

-- Remove contenders; which have left, and those that a transaction keeps. What it `kept` before and has
-- let go counts as left, whoever has removed it.
CREATE FUNCTION _withdraw(
    sessions text[], ids text[], of_token bigint, kept json, OUT answer json, OUT gone contender[]
) LANGUAGE plpgsql AS $$
BEGIN
    gone := _remove(sessions, ids, of_token);
    IF kept IS NOT NULL THEN
        gone := array(
            SELECT k FROM json_populate_recordset(NULL::contender, kept) AS k
            WHERE NOT EXISTS (SELECT FROM contender c WHERE c.queue = k.queue AND c.token = k.token));
    END IF;
    answer := json_build_array(
        (SELECT coalesce(json_agg(json_build_array(id, token)), '[]') FROM unnest(gone)),
        (SELECT coalesce(json_agg(c), '[]') FROM _find(sessions, ids) c WHERE token = coalesce(of_token, token)));
END $$;

-- Add a contender for each entry, or find those of the session. All have one token.
CREATE FUNCTION _enqueue(
    in_root text, of_session text, names text[], ids text[], claims text[], owners text[], "values" bytea[],
    windows integer[], OUT answer json, OUT gone contender[], OUT places text[]
) LANGUAGE plpgsql AS $$
DECLARE
    latest record := _epoch();
    entry record;
    here queue;
    queues queue[];
    mine bigint[];
    parts json[];
BEGIN
    gone := '{}';
    places := '{}';
    IF latest.quiet > 0 THEN
        answer := json_build_object('quiet', latest.quiet);
        RETURN;
    END IF;
    PERFORM FROM session s WHERE s.id = of_session AND s.epoch = latest.number AND NOT ended;
    IF NOT FOUND THEN
        answer := json_build_object('lost', latest.number);
        RETURN;
    END IF;
    -- First the locks, in one order everywhere, and then, in a newer snapshot, all that is read: so
    -- tokens are in the order of the commits.
    FOR entry IN
        SELECT e.name, e.place FROM unnest(names) WITH ORDINALITY AS e(name, place) ORDER BY e.name COLLATE "C"
    LOOP
        LOOP
            SELECT * INTO here FROM queue q WHERE q.root = in_root AND q.name = entry.name FOR UPDATE;
            EXIT WHEN FOUND;
            INSERT INTO queue (root, name) VALUES (in_root, entry.name) ON CONFLICT DO NOTHING;
        END LOOP;
        queues[entry.place] := here;
    END LOOP;
    SELECT array_agg(token) INTO mine FROM _find(ARRAY[of_session], ids);
    IF coalesce(cardinality(mine), 0) < cardinality(ids) THEN
        IF mine IS NOT NULL THEN
            gone := _remove(ARRAY[of_session], ids, NULL); -- what is left of a set
        END IF;
        mine[1] := latest.number::bigint << 39 | nextval('token');
        INSERT INTO contender (queue, token, session, id, claim, owner, value)
        SELECT (queues[place]).id, mine[1], of_session, e.id, e.claim, e.owner, e.value
        FROM unnest(ids, claims, owners, "values") WITH ORDINALITY AS e(id, claim, owner, value, place);
        places := array(SELECT 'queue:' || added FROM unnest(names) AS added);
    END IF;
    FOR place IN 1 .. cardinality(ids) LOOP
        here := queues[place];
        parts[place] := _part(here, mine[1], windows[place], NULL);
        -- Seldom, for dead versions of this row are read, too.
        IF mine[1] - here.floor > 200 AND json_array_length(parts[place] -> 1) = 1 THEN
            UPDATE queue SET floor = mine[1] WHERE queue.id = here.id;
        END IF;
    END LOOP;
    answer := json_build_object('parts', array_to_json(parts));
END $$;

-- End a session unless its beat has changed; what has left. Never waits.
CREATE FUNCTION _end(ended_session text, at_beat bigint) RETURNS contender[]
LANGUAGE plpgsql AS $$
DECLARE
    gone contender[];
BEGIN
    PERFORM FROM session s WHERE s.id = ended_session AND (s.ended OR at_beat IS NULL OR s.beat = at_beat)
    FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN '{}';
    END IF;
    gone := _remove(ARRAY[ended_session], array(SELECT id FROM contender c WHERE c.session = ended_session), NULL);
    UPDATE session s SET ended = true WHERE s.id = ended_session AND NOT s.ended;
    DELETE FROM session s
    WHERE s.id = ended_session AND NOT EXISTS (SELECT FROM contender c WHERE c.session = s.id);
    RETURN gone;
END $$;

-- End a session that a waiter saw without a beat for its ttl.
CREATE FUNCTION _reap(reaped text, at_beat bigint) RETURNS contender[]
LANGUAGE sql VOLATILE AS $$
    SELECT CASE WHEN quiet > 0 THEN '{}' ELSE _end(reaped, at_beat) END FROM _epoch()
$$;

-- End what nobody has waited for: sessions of earlier epochs, and those a minute overdue, for the
-- server's clock may have been set forward. Also queues without contenders.
CREATE FUNCTION _tidy() RETURNS contender[] LANGUAGE plpgsql AS $$
DECLARE
    latest record := _epoch();
    gone contender[] := '{}';
    old text;
    empty bigint[];
BEGIN
    IF latest.quiet > 0 THEN
        RETURN gone;
    END IF;
    FOR old IN
        SELECT id FROM session s
        WHERE s.ended OR s.epoch < latest.number OR s.expires_at < clock_timestamp() - interval '60 s' LIMIT 100
    LOOP
        gone := gone || _end(old, NULL);
    END LOOP;
    empty := array(
        SELECT id FROM queue q WHERE NOT EXISTS (SELECT FROM contender c WHERE c.queue = q.id)
        LIMIT 100 FOR UPDATE SKIP LOCKED);
    DELETE FROM queue q
    WHERE q.id = ANY (empty) AND NOT EXISTS (SELECT FROM contender c WHERE c.queue = q.id);
    RETURN gone;
END $$;

-- Begin a session in place of the client's `former` ones.
CREATE FUNCTION _open(new text, former text[], new_ttl interval, OUT answer json, OUT gone contender[])
LANGUAGE plpgsql AS $$
DECLARE
    latest record := _epoch();
    old text;
BEGIN
    gone := '{}';
    IF new_ttl > latest.pause THEN
        answer := json_build_object('pause', extract(epoch FROM latest.pause));
        RETURN;
    END IF;
    INSERT INTO session (id, epoch, ttl, expires_at)
    VALUES (new, latest.number, new_ttl, clock_timestamp() + new_ttl);
    -- What the client has given up there may still wait for a standby: it does not repeat it.
    PERFORM FROM session s WHERE s.id = ANY (former) ORDER BY s.id FOR UPDATE;
    FOREACH old IN ARRAY former LOOP
        gone := gone || _end(old, NULL);
    END LOOP;
    gone := gone || _tidy();
    -- What names the database, also after a failover.
    answer := (SELECT json_build_object('database', concat_ws('/', system_identifier, current_database()))
               FROM pg_control_system());
END $$;

CREATE FUNCTION _heartbeat(beating text) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    latest record := _epoch();
BEGIN
    UPDATE session s SET beat = beat + 1, expires_at = clock_timestamp() + ttl
    WHERE s.id = beating AND s.epoch = latest.number AND NOT ended;
    RETURN FOUND;
END $$;

CREATE FUNCTION _publish(
    of_session text, of_id text, of_token bigint, new bytea, known bigint, OUT answer json, OUT changed contender[]
) LANGUAGE plpgsql AS $$
DECLARE
    latest constant record := _epoch();
    found contender;
BEGIN
    WITH new_version AS (
        UPDATE contender c SET value = new, version = version + 1
        WHERE (c.session, c.id, c.token, c.version) = (of_session, of_id, of_token, known)
          AND EXISTS (SELECT FROM session s WHERE s.id = of_session AND s.epoch = latest.number)
        RETURNING c
    ) SELECT coalesce(array_agg(c), '{}') INTO changed FROM new_version;
    SELECT * INTO found FROM contender c WHERE (c.session, c.id, c.token) = (of_session, of_id, of_token);
    answer := json_build_object(
        CASE WHEN found.id IS NULL OR found.version = known THEN 'evicted' -- or of an earlier epoch
             WHEN (found.version, found.value) = (known + 1, new) THEN 'done' ELSE 'version' END, true);
END $$;

-- Whether contenders are in their queues. Until this transaction ends, none of them leaves.
CREATE FUNCTION _admit(sessions text[], ids text[], tokens bigint[]) RETURNS boolean
LANGUAGE sql VOLATILE AS $$
    SELECT count(*) = cardinality(ids) FROM unnest(sessions, ids, tokens) AS g(session, id, token), LATERAL (
        SELECT FROM contender c WHERE (c.session, c.id, c.token) = (g.session, g.id, g.token) FOR KEY SHARE
    ) AS there
$$;

-- For the program's own transaction: keep contenders in their queues until it ends, also if their
-- session ends meanwhile, or remove them with its commit. A program that hangs in it, or reads no answer,
-- is ended after the seconds that the session has `left`. The answer is held, lost, or snapshot: for a
-- snapshot that is older than the contender shows neither.
CREATE FUNCTION guard(
    sessions text[], ids text[], tokens bigint[], seconds_left double precision, removes boolean
) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    latest epoch;
    is_there boolean;
    timeout constant interval := make_interval(secs => greatest(0.001, seconds_left));
    name text;
BEGIN
    IF current_setting('transaction_isolation') = 'read committed' THEN
        is_there := _admit(sessions, ids, tokens);
    ELSE
        BEGIN
            is_there := _admit(sessions, ids, tokens);
        EXCEPTION WHEN serialization_failure THEN -- it has left since the snapshot
            RETURN 'lost';
        END;
        IF NOT is_there THEN
            RETURN 'snapshot';
        END IF;
    END IF;
    SELECT * INTO latest FROM epoch ORDER BY number DESC LIMIT 1;
    IF NOT is_there OR latest.timeline <> _timeline() OR EXISTS (
        SELECT FROM session s WHERE s.id = ANY (sessions) AND (ended OR s.epoch < latest.number)
    ) THEN
        RETURN 'lost';
    END IF;
    IF removes THEN
        DELETE FROM contender c USING unnest(sessions, ids) AS g(session, id)
        WHERE (c.session, c.id) = (g.session, g.id);
    END IF;
    FOREACH name IN ARRAY ARRAY['idle_in_transaction_session_timeout', 'tcp_user_timeout'] LOOP
        IF current_setting(name)::interval NOT BETWEEN '1 ms' AND timeout THEN
            PERFORM set_config(name, ceil(1000 * extract(epoch FROM timeout))::text, true);
        END IF;
    END LOOP;
    RETURN 'held';
END $$;

-- Do all operations or none: `verbs` are put, delete, expect and read.
CREATE FUNCTION _write(
    in_root text, sessions text[], ids text[], tokens bigint[], verbs text[], folders text[], names text[], versions bigint[],
    "values" bytea[], OUT answer json, OUT places text[]
) LANGUAGE plpgsql AS $$
DECLARE
    unmet integer;
BEGIN
    places := '{}';
    IF NOT _admit(sessions, ids, tokens) THEN
        answer := json_build_object('evicted', true);
        RETURN;
    END IF;
    -- Lock all keys in one order. One that is missing is locked by a row of version 0.
    INSERT INTO data
    SELECT DISTINCT in_root, folder, name, NULL::bytea, 0 FROM unnest(verbs, folders, names) AS o(verb, folder, name)
    WHERE verb <> 'read' ORDER BY folder, name
    ON CONFLICT (root, folder, name) DO UPDATE SET version = 0 WHERE false;
    SELECT place INTO unmet
    FROM unnest(verbs, folders, names, versions) WITH ORDINALITY AS o(verb, folder, name, version, place)
    JOIN data d USING (folder, name)
    WHERE d.root = in_root AND verb = 'expect' AND d.version <> o.version LIMIT 1;
    IF unmet IS NULL THEN
        UPDATE data d SET value = o.value, version = d.version + 1
        FROM unnest(verbs, folders, names, "values") AS o(verb, folder, name, value)
        WHERE verb = 'put' AND (d.root, d.folder, d.name) = (in_root, o.folder, o.name);
        DELETE FROM data d USING unnest(verbs, folders, names) AS o(verb, folder, name)
        WHERE verb = 'delete' AND (d.root, d.folder, d.name) = (in_root, o.folder, o.name);
        places := array(
            SELECT unnest(ARRAY['key:' || folder || name, 'folder:' || folder])
            FROM unnest(verbs, folders, names) AS o(verb, folder, name) WHERE verb IN ('put', 'delete'));
    END IF;
    DELETE FROM data d USING unnest(folders, names) AS o(folder, name)
    WHERE d.version = 0 AND (d.root, d.folder, d.name) = (in_root, o.folder, o.name);
    IF unmet IS NOT NULL THEN
        answer := json_build_object('version', unmet - 1);
    ELSE
        answer := json_build_object(
            'time', extract(epoch FROM clock_timestamp()),
            'values', (SELECT coalesce(json_agg(json_build_array(folder || name, encode(d.value, 'hex'), version)), '[]')
                       FROM unnest(verbs, folders, names) AS o(verb, folder, name) JOIN data d USING (folder, name)
                       WHERE d.root = in_root AND verb = 'read'));
    END IF;
END $$;

-- Notify the clients that wait for what has happened, and has been committed before: the contenders
-- that a departure may admit, those that are converting, and those that follow a place. What the
-- `caller` itself did, it knows. What gets lost here is found by a look.
CREATE FUNCTION _notify(
    in_root text, caller text, gone contender[], changed contender[], places text[]
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    left_one contender;
    behind record;
    channels text[];
    message text;
    passed integer;
BEGIN
    IF pg_notification_queue_usage() > 0.9 THEN
        RETURN; -- a client that does not listen holds up all others: this commit would fail
    END IF;
    IF _is_quiet() THEN
        gone := '{}'; -- it admits nobody of an earlier epoch, and there are no others yet
    END IF;
    FOREACH left_one IN ARRAY gone || changed LOOP
        message := format('%s %s %s %s', CASE WHEN left_one = ANY (changed) THEN 'value' ELSE 'left' END,
                          left_one.id, left_one.token, left_one.version);
        channels := array(
            SELECT split_part(session, '-', 1) FROM contender c WHERE c.queue = left_one.queue AND claim = 'convertible');
        channels := channels || split_part(left_one.session, '-', 1);
        passed := 0;
        FOR behind IN
            SELECT session, claim FROM contender c
            WHERE c.queue = left_one.queue AND c.token > left_one.token ORDER BY c.token
        LOOP
            channels := channels || split_part(behind.session, '-', 1);
            passed := passed + 1;
            EXIT WHEN behind.claim = 'lock' OR behind.claim = 'permit' || passed;
        END LOOP;
        PERFORM pg_notify(channel, message)
        FROM (SELECT DISTINCT unnest(channels) AS channel) AS reached WHERE channel <> caller;
    END LOOP;
    IF gone || changed <> '{}' THEN
        places := places || array(
            SELECT DISTINCT 'queue:' || q.name FROM unnest(gone || changed) AS c JOIN queue q ON q.id = c.queue);
    END IF;
    PERFORM pg_notify(channel, 'place ' || place)
    FROM follower f WHERE f.root = in_root AND f.place = ANY (places) AND until > clock_timestamp();
END $$;

-- The server process whose transaction keeps a contender, or one of several. Where there are several,
-- xmax is the number of their group, which might be the number of an unrelated transaction, too.
CREATE FUNCTION keeper(of_session text, of_id text) RETURNS integer LANGUAGE plpgsql STABLE AS $$
DECLARE
    keeping constant xid := (SELECT xmax FROM contender WHERE (session, id) = (of_session, of_id));
    members xid[] := ARRAY[keeping];
BEGIN
    BEGIN
        members := members || array(SELECT xid FROM pg_get_multixact_members(keeping));
    EXCEPTION WHEN OTHERS THEN
        NULL; -- it is no group
    END;
    RETURN (
        SELECT min(l.pid) FROM pg_locks l JOIN pg_locks r ON r.pid = l.pid AND r.relation = 'contender'::regclass
        WHERE l.transactionid = ANY (members) AND l.granted AND r.mode IN ('RowShareLock', 'RowExclusiveLock'));
END $$;

-- What a client watches, as far as it is there: id, token, version, session, and its beat and ttl. Null
-- while nothing is granted: a contender that is gone would admit one of an earlier epoch.
CREATE FUNCTION look(sessions text[], ids text[]) RETURNS json LANGUAGE sql VOLATILE AS $$
    SELECT CASE WHEN NOT _is_quiet() THEN coalesce(json_agg(seen), '[]') END FROM unnest(sessions, ids) AS w(session, id), LATERAL (
        SELECT json_build_array(c.id, token, version, s.id, CASE WHEN ended THEN -1 ELSE beat END,
                                extract(epoch FROM ttl)) AS seen
        FROM contender c JOIN session s ON s.id = c.session WHERE c.session = w.session AND c.id = w.id OFFSET 0
    ) AS found
$$;

-- Follow these places and no others for a minute.
CREATE FUNCTION _follow(in_root text, on_channel text, places text[]) RETURNS void
LANGUAGE sql VOLATILE AS $$
    DELETE FROM follower WHERE (root, channel) = (in_root, on_channel) AND place <> ALL (places)
       OR until < clock_timestamp();
    INSERT INTO follower
    SELECT in_root, place, on_channel, clock_timestamp() + interval '60 s' FROM unnest(places) AS place
    ON CONFLICT (root, place, channel) DO UPDATE SET until = excluded.until
$$;

CREATE FUNCTION snapshot(
    in_root text, of_name text, upto bigint, "window" integer, compatible text[]
) RETURNS json LANGUAGE sql STABLE AS $$
    SELECT _part(q, upto, "window", compatible) FROM queue q WHERE (root, name) = (in_root, of_name)
$$;

CREATE FUNCTION queues(in_root text) RETURNS json LANGUAGE sql STABLE AS $$
    SELECT coalesce(json_agg(name), '[]') FROM queue q
    WHERE root = in_root AND EXISTS (SELECT FROM contender c WHERE c.queue = q.id)
$$;

-- What a folder holds, or one key of it; null unless the guard, if any, is in its queue.
CREATE FUNCTION _read(in_root text, in_folder text, key text, sessions text[], ids text[], tokens bigint[]) RETURNS json
LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN cardinality(ids) = (
        SELECT count(*) FROM contender c
        JOIN unnest(sessions, ids, tokens) AS g(session, id, token) USING (session, id, token)
    ) THEN (
        SELECT coalesce(json_agg(json_build_array(name, encode(value, 'hex'), version) ORDER BY name), '[]')
        FROM data WHERE root = in_root AND folder = in_folder AND (key IS NULL OR name = key)
    ) END
$$;

-- The timeline and the place in its log. A reading that begins after this shows what was committed.
CREATE FUNCTION _revision() RETURNS text LANGUAGE sql VOLATILE AS $$
    SELECT left(pg_walfile_name(lsn), 8) || '/' || lsn FROM pg_current_wal_insert_lsn() AS lsn
$$;

-- Functions run as the owner of the schema, and find nothing but what is meant.
DO $$
DECLARE
    name regprocedure;
BEGIN
    FOR name IN SELECT oid FROM pg_proc WHERE pronamespace = 'coordlock'::regnamespace LOOP
        EXECUTE format(
            'ALTER FUNCTION %s SECURITY DEFINER SET search_path = pg_catalog, coordlock, pg_temp', name);
    END LOOP;
END $$;

-- Requests. Each begins as `_begin` does, and ends as `_finish` does.

-- Whatever the role's defaults are: a commit is durable, and each statement sees what is committed.
CREATE PROCEDURE _begin() LANGUAGE plpgsql AS $$
BEGIN
    IF pg_catalog.current_setting('transaction_isolation') <> 'read committed'
       OR pg_catalog.current_setting('transaction_read_only') = 'on' THEN
        ROLLBACK;
        SET TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE;
    END IF;
    IF pg_catalog.current_setting('synchronous_commit') IN ('off', 'local') THEN
        PERFORM pg_catalog.set_config('synchronous_commit', 'on', true);
    END IF;
    -- A client that has given up leaves its connection to the server, which may wait for a standby
    -- with a queue's lock: not one connection for each repetition.
    PERFORM pg_catalog.set_config('lock_timeout', '5s', true);
END $$;

-- Commit, and notify others by another transaction. It sees who waits by now. It waits for no disk,
-- for it has a lock that all commits with a NOTIFY in this cluster want.
CREATE PROCEDURE _finish(
    in_root text, caller text, gone contender[], changed contender[], places text[]
) LANGUAGE plpgsql AS $$
BEGIN
    COMMIT;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    PERFORM pg_catalog.set_config('synchronous_commit', 'off', true);
    PERFORM coordlock._notify(in_root, caller, gone, changed, places);
END $$;

CREATE PROCEDURE open(root text, new text, former text[], ttl interval, INOUT answer json DEFAULT NULL)
LANGUAGE plpgsql AS $$
DECLARE
    gone coordlock.contender[];
BEGIN
    CALL coordlock._begin();
    -- A session that no standby has is granted nothing, because enqueue and heartbeats wait for one.
    PERFORM pg_catalog.set_config('synchronous_commit', 'local', true);
    SELECT o.answer, o.gone INTO answer, gone FROM coordlock._open(new, former, ttl) AS o;
    CALL coordlock._finish(root, pg_catalog.split_part(new, '-', 1), gone, '{}', '{}');
END $$;

CREATE PROCEDURE heartbeat(session text, INOUT answer json DEFAULT NULL) LANGUAGE plpgsql AS $$
BEGIN
    CALL coordlock._begin();
    answer := pg_catalog.to_json(coordlock._heartbeat(session));
END $$;

CREATE PROCEDURE enqueue(
    root text, session text, names text[], ids text[], claims text[], owners text[], "values" bytea[],
    windows integer[], INOUT answer json DEFAULT NULL
) LANGUAGE plpgsql AS $$
DECLARE
    gone coordlock.contender[];
    places text[];
BEGIN
    CALL coordlock._begin();
    SELECT e.answer, e.gone, e.places INTO answer, gone, places
    FROM coordlock._enqueue(root, session, names, ids, claims, owners, "values", windows) AS e;
    CALL coordlock._finish(root, pg_catalog.split_part(session, '-', 1), gone, '{}', places);
END $$;

CREATE PROCEDURE withdraw(
    root text, caller text, sessions text[], ids text[], token bigint, kept json, INOUT answer json DEFAULT NULL
) LANGUAGE plpgsql AS $$
DECLARE
    gone coordlock.contender[];
BEGIN
    CALL coordlock._begin();
    SELECT w.answer, w.gone INTO answer, gone FROM coordlock._withdraw(sessions, ids, token, kept) AS w;
    CALL coordlock._finish(root, caller, gone, '{}', '{}');
END $$;

CREATE PROCEDURE close(root text, session text, INOUT answer json DEFAULT NULL) LANGUAGE plpgsql AS $$
BEGIN
    CALL coordlock._begin();
    CALL coordlock._finish(root, pg_catalog.split_part(session, '-', 1), coordlock._end(session, NULL), '{}', '{}');
END $$;

CREATE PROCEDURE reap(root text, session text, beat bigint, INOUT answer json DEFAULT NULL)
LANGUAGE plpgsql AS $$
BEGIN
    CALL coordlock._begin();
    CALL coordlock._finish(root, '', coordlock._reap(session, beat), '{}', '{}');
END $$;

CREATE PROCEDURE tidy(root text, INOUT answer json DEFAULT NULL) LANGUAGE plpgsql AS $$
BEGIN
    CALL coordlock._begin();
    CALL coordlock._finish(root, '', coordlock._tidy(), '{}', '{}');
END $$;

CREATE PROCEDURE publish(
    root text, session text, id text, token bigint, new bytea, known bigint, INOUT answer json DEFAULT NULL
) LANGUAGE plpgsql AS $$
DECLARE
    changed coordlock.contender[];
BEGIN
    CALL coordlock._begin();
    SELECT p.answer, p.changed INTO answer, changed FROM coordlock._publish(session, id, token, new, known) AS p;
    CALL coordlock._finish(root, '', '{}', changed, '{}');
END $$;

CREATE PROCEDURE follow(root text, channel text, places text[], INOUT answer json DEFAULT NULL)
LANGUAGE plpgsql AS $$
BEGIN
    CALL coordlock._begin();
    PERFORM coordlock._follow(root, channel, places);
END $$;

CREATE PROCEDURE read(
    root text, folder text, key text, sessions text[], ids text[], tokens bigint[], INOUT answer json DEFAULT NULL
) LANGUAGE plpgsql AS $$
DECLARE
    revision text;
BEGIN
    CALL coordlock._begin();
    revision := coordlock._revision();
    answer := pg_catalog.json_build_array(revision, coordlock._read(root, folder, key, sessions, ids, tokens));
END $$;

CREATE PROCEDURE write(
    root text, sessions text[], ids text[], tokens bigint[], verbs text[], folders text[], names text[], versions bigint[],
    "values" bytea[], INOUT answer json DEFAULT NULL
) LANGUAGE plpgsql AS $$
DECLARE
    places text[];
BEGIN
    CALL coordlock._begin();
    SELECT w.answer, w.places INTO answer, places
    FROM coordlock._write(root, sessions, ids, tokens, verbs, folders, names, versions, "values") AS w;
    CALL coordlock._finish(root, '', '{}', '{}', places);
    answer := pg_catalog.json_build_array(coordlock._revision(), answer);
END $$;

INSERT INTO epoch VALUES (_minute(), _timeline(), to_timestamp(0), interval '60 s');
