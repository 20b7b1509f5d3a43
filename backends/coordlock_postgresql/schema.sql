-- coordlock's schema for PostgreSQL 13 and later. A role that has USAGE on it may lock.
--
-- It makes the schema or upgrades it: tables stay, and all functions are made anew. Each request is one
-- `CALL coordlock.request(...)`, which every pooler lets through.

CREATE SCHEMA IF NOT EXISTS coordlock;
SET LOCAL search_path = coordlock, pg_catalog, pg_temp; -- of this file; it is one transaction
SET LOCAL client_min_messages = warning;

DO $$
DECLARE
    old text;
BEGIN
    FOR old IN SELECT oid::regprocedure FROM pg_proc WHERE pronamespace = 'coordlock'::regnamespace LOOP
        EXECUTE 'DROP ROUTINE ' || old;
    END LOOP;
END $$;
DROP TYPE IF EXISTS arguments, outcome, key, entry, operation;

-- How often the data may have gone back: another timeline or another cluster begins a new epoch, in
-- which earlier sessions have ended, and nothing is granted for the `pause`.
CREATE TABLE IF NOT EXISTS epoch (
    number integer PRIMARY KEY CHECK (number BETWEEN 1 AND 16777215),
    timeline text NOT NULL COLLATE "C",
    since timestamptz NOT NULL,
    pause interval NOT NULL
);

-- The lower 39 bits of all tokens. A sequence goes on after a crash, and the epoch after a failover.
CREATE SEQUENCE IF NOT EXISTS token MAXVALUE 549755813887 NO CYCLE;

-- Its id is the client's channel, a minus, and a number. It has ended when a client that waits saw no other `beat` for its `ttl`. `expires_at` is for
-- those that nobody waits for. Neither is indexed: heartbeats must meet no check of a foreign key.
CREATE TABLE IF NOT EXISTS session (
    id text PRIMARY KEY COLLATE "C",
    epoch integer NOT NULL,
    beat bigint NOT NULL DEFAULT 0,
    ttl interval NOT NULL,
    expires_at timestamptz NOT NULL,
    -- Its contenders leave; a transaction may keep some of them.
    ended boolean NOT NULL DEFAULT false
) WITH (fillfactor = 50);

CREATE TABLE IF NOT EXISTS queue (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    root text NOT NULL COLLATE "C",
    name text NOT NULL COLLATE "C",
    -- No contender has a smaller token: what is dead is not read.
    floor bigint NOT NULL DEFAULT 0,
    UNIQUE (root, name)
) WITH (fillfactor = 50);

CREATE TABLE IF NOT EXISTS contender (
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
CREATE INDEX IF NOT EXISTS convertible ON contender (queue) WHERE claim = 'convertible';

CREATE TABLE IF NOT EXISTS data (
    root text COLLATE "C",
    folder text COLLATE "C",
    name text COLLATE "C",
    value bytea NOT NULL,
    version bigint NOT NULL,
    PRIMARY KEY (root, folder, name)
) WITH (fillfactor = 50);

-- Who wants to know when a queue, key or folder changes. Clients renew it, also after a crash.
CREATE UNLOGGED TABLE IF NOT EXISTS follower (
    place text COLLATE "C",
    channel text COLLATE "C",
    until timestamptz NOT NULL,
    PRIMARY KEY (place, channel)
) WITH (fillfactor = 50);

CREATE FUNCTION schema_version() RETURNS integer LANGUAGE sql IMMUTABLE AS 'SELECT 1';

CREATE TYPE key AS (session text, id text, token bigint, beat bigint);
CREATE TYPE entry AS (name text, id text, claim text, owner text, value bytea, nearest integer);
CREATE TYPE operation AS (verb text, folder text, name text, version bigint, value bytea);

-- Functions are in PL/pgSQL where they matter, which keeps their plans.

-- What a request is about; each has some of it.
CREATE TYPE arguments AS (
    root text, caller text, session text, clock double precision, ttl interval, former text[], entries entry[],
    contenders key[], kept contender[], places text[], name text, upto bigint, nearest integer, compatible text[],
    folder text, operations operation[], value bytea, version bigint
);

-- Its answer, and what others have to learn of what it has done.
CREATE TYPE outcome AS (answer json, gone contender[], changed contender[], places text[]);

-- Names the history of the data: the cluster, the timeline that is written now, and the table, which a
-- restored dump makes anew. The control file would name the timeline of the last checkpoint.
CREATE FUNCTION _timeline() RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    RETURN concat_ws('/', (pg_control_system()).system_identifier,
                     left(pg_walfile_name(pg_current_wal_insert_lsn()), 8), 'coordlock.epoch'::regclass::oid);
END $$;

-- The timeline and the place in its log. A reading that begins after this shows what was committed.
CREATE FUNCTION _revision() RETURNS numeric LANGUAGE plpgsql AS $$
DECLARE
    lsn constant pg_lsn := pg_current_wal_insert_lsn();
BEGIN
    RETURN ('x' || left(pg_walfile_name(lsn), 8))::bit(32)::bigint * 18446744073709551616 + (lsn - '0/0');
END $$;

-- Minutes since 2026. Epochs are dated, for a number that only counts on comes again when another copy
-- of the same data is promoted or restored. Two copies can't both grant in the epochs of one minute,
-- since the first had to pause longer.
CREATE FUNCTION _minute() RETURNS integer LANGUAGE sql AS $$
    SELECT ((extract(epoch FROM clock_timestamp()) - 1767225600) / 60)::integer
$$;

-- For the owner after a restored backup, and for `_epoch`.
CREATE FUNCTION new_epoch() RETURNS void LANGUAGE sql AS $$
    INSERT INTO epoch
    SELECT greatest(number + 1, _minute()), _timeline(), clock_timestamp(), pause FROM epoch
    ORDER BY number DESC LIMIT 1 ON CONFLICT DO NOTHING
$$;
REVOKE EXECUTE ON FUNCTION new_epoch() FROM PUBLIC;

-- The epoch; a new one if another timeline is written.
CREATE FUNCTION _epoch(OUT latest epoch) LANGUAGE plpgsql AS $$
BEGIN
    LOOP
        SELECT * INTO latest FROM epoch ORDER BY number DESC LIMIT 1;
        EXIT WHEN latest.timeline = _timeline();
        PERFORM new_epoch();
    END LOOP;
    -- The clock was set back: the pause counts from now on.
    IF latest.since > clock_timestamp() THEN
        UPDATE epoch e SET since = clock_timestamp() WHERE e.number = latest.number RETURNING * INTO latest;
    END IF;
END $$;

-- Fail unless the session of a request lives. Whoever reads a queue to be granted asks this, too: on the
-- old primary a contender of an earlier epoch may have been evicted.
CREATE FUNCTION _check(session text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM session s WHERE s.id = session AND s.epoch = (_epoch()).number AND NOT ended;
    IF NOT FOUND THEN
        RAISE 'it expired, an operator deleted it, or another server answers (failover, restored backup)'
        USING ERRCODE = 'CLOST';
    END IF;
END $$;

-- Those of these contenders that are there. Each is found by the index on session and id, which a join
-- or a condition with arrays would read whole, or not use, while the table has no statistics.
CREATE FUNCTION _find(keys key[]) RETURNS SETOF contender LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN QUERY SELECT c.* FROM unnest(keys) AS k, LATERAL (
        SELECT * FROM contender WHERE session = k.session AND id = k.id AND token = coalesce(k.token, token) OFFSET 0
    ) AS c;
END $$;

-- The contenders of a queue up to a token in ascending order, behind how many others they stand. Of
-- those before it the `nearest`, or without that those of no `compatible` claim.
CREATE FUNCTION _part(of_queue queue, upto bigint, nearest integer, compatible text[]) RETURNS json
LANGUAGE plpgsql STABLE AS $$
DECLARE
    found contender[];
    omitted bigint := 0;
BEGIN
    SELECT array_agg(near ORDER BY token) INTO found FROM (
        SELECT * FROM contender c
        WHERE queue = of_queue.id AND token BETWEEN of_queue.floor AND upto
          AND (token = upto OR claim <> ALL (coalesce(compatible, '{}')))
        ORDER BY token DESC LIMIT nearest + 1
    ) AS near;
    IF cardinality(found) > nearest THEN
        SELECT count(*) INTO omitted FROM contender
        WHERE queue = of_queue.id AND token >= of_queue.floor AND token < found[1].token;
    END IF;
    RETURN json_build_array(omitted, (
        SELECT coalesce(json_agg(json_build_array(id, token, claim, session, owner, encode(value, 'hex'), version)), '[]')
        FROM unnest(found)
    ));
END $$;

-- Remove contenders. Never waits: what another transaction has locked stays.
CREATE FUNCTION _remove(keys key[], OUT gone contender[]) LANGUAGE plpgsql AS $$
BEGIN
    WITH here AS (
        SELECT h.at FROM unnest(keys) AS k, LATERAL (
            SELECT ctid AS at FROM contender
            WHERE session = k.session AND id = k.id AND token = coalesce(k.token, token) FOR UPDATE SKIP LOCKED
        ) AS h
    ), removed AS (
        DELETE FROM contender c WHERE ctid = ANY (ARRAY(SELECT at FROM here)) RETURNING c
    )
    SELECT array_agg(c) INTO gone FROM removed;
END $$;

-- End a session unless its beat is another one; what has left. Never waits.
CREATE FUNCTION _end(old text, at_beat bigint, OUT gone contender[]) LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM session WHERE id = old AND beat = coalesce(at_beat, beat) FOR UPDATE SKIP LOCKED;
    IF FOUND THEN
        gone := _remove(ARRAY(SELECT (session, id, token, 0)::key FROM contender WHERE session = old));
        UPDATE session SET ended = true WHERE id = old AND NOT ended;
        DELETE FROM session WHERE id = old AND NOT EXISTS (SELECT FROM contender WHERE session = old);
    END IF;
END $$;

-- Remove what nobody waits for: sessions of earlier epochs, and those a minute overdue, for the server's
-- clock may have been set forward; followers, and queues without contenders.
CREATE FUNCTION _tidy() RETURNS contender[] LANGUAGE plpgsql AS $$
DECLARE
    empty bigint[];
BEGIN
    DELETE FROM follower WHERE until < clock_timestamp();
    empty := ARRAY(
        SELECT id FROM queue q WHERE NOT EXISTS (SELECT FROM contender WHERE queue = q.id)
        LIMIT 100 FOR UPDATE SKIP LOCKED);
    DELETE FROM queue q WHERE id = ANY (empty) AND NOT EXISTS (SELECT FROM contender WHERE queue = q.id);
    RETURN ARRAY(
        SELECT gone FROM (
            SELECT id, beat FROM session, _epoch() AS latest
            WHERE ended OR epoch < latest.number OR expires_at < clock_timestamp() - interval '60 s' LIMIT 100
        ) AS old, unnest(_end(id, beat)) AS gone);
END $$;

-- Whether contenders are in their queues. Until this transaction ends, none of them leaves.
CREATE FUNCTION _admit(keys key[]) RETURNS boolean LANGUAGE sql AS $$
    SELECT count(*) = cardinality(keys) FROM unnest(keys) AS k, LATERAL (
        SELECT FROM contender c WHERE (c.session, c.id, c.token) = (k.session, k.id, k.token) FOR KEY SHARE
    ) AS there
$$;

-- Whether the session of a contender has ended, as those of earlier epochs have. It begins no epoch, for
-- the transaction may be the program's.
CREATE FUNCTION _have_ended(keys key[]) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    latest epoch;
BEGIN
    SELECT * INTO latest FROM epoch ORDER BY number DESC LIMIT 1;
    RETURN keys <> '{}' AND (latest.timeline <> _timeline() OR EXISTS (
        SELECT FROM unnest(keys) AS k JOIN session s ON s.id = k.session WHERE ended OR s.epoch < latest.number));
END $$;

-- For the program's own transaction: keep contenders in their queues until it ends, also if their
-- session ends meanwhile, or remove them with its commit. A program that hangs in it, or reads no answer,
-- is ended after the seconds that the session has `left`. The answer is held, lost, or snapshot: for a
-- snapshot that is older than the contender shows neither. The advisory lock only shows who guards, and
-- waits for no lock of the program's own: see `withdraw`.
CREATE FUNCTION guard(
    sessions text[], ids text[], tokens bigint[], seconds_left double precision, removes boolean
) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    keys constant key[] := ARRAY(SELECT (s, i, t, 0)::key FROM unnest(sessions, ids, tokens) AS g(s, i, t));
    is_there boolean;
    timeout constant interval := make_interval(secs => greatest(0.001, seconds_left));
    name text;
BEGIN
    PERFORM pg_try_advisory_xact_lock_shared(t) FROM unnest(tokens) AS t;
    IF current_setting('transaction_isolation') LIKE 'read %' THEN
        is_there := _admit(keys);
    ELSE
        BEGIN
            is_there := _admit(keys);
        EXCEPTION WHEN serialization_failure THEN -- it has left since the snapshot
            RETURN 'lost';
        END;
        IF NOT is_there THEN
            RETURN 'snapshot';
        END IF;
    END IF;
    IF NOT is_there OR _have_ended(keys) THEN
        RETURN 'lost';
    END IF;
    IF removes THEN
        DELETE FROM contender c USING unnest(keys) AS k WHERE (c.session, c.id) = (k.session, k.id);
    END IF;
    FOREACH name IN ARRAY ARRAY['idle_in_transaction_session_timeout', 'tcp_user_timeout'] LOOP
        IF current_setting(name)::interval NOT BETWEEN '1 ms' AND timeout THEN
            PERFORM set_config(name, ceil(1000 * extract(epoch FROM timeout))::text, true);
        END IF;
    END LOOP;
    RETURN 'held';
END $$;

-- The requests. `request` calls them by their names.

-- Begin a session in place of the client's `former` ones.
CREATE FUNCTION open(a arguments, OUT done outcome) LANGUAGE plpgsql AS $$
DECLARE
    latest constant epoch := _epoch();
BEGIN
    IF a.ttl > latest.pause THEN
        RAISE 'ttl=% is longer than the % s for which nothing is granted after a failover: give a shorter one, '
              'or set it with `coordlock setup postgresql --max-ttl`',
              extract(epoch FROM a.ttl)::real, extract(epoch FROM latest.pause)::real USING ERRCODE = 'invalid_parameter_value';
    END IF;
    -- A session that no standby has is granted nothing, because enqueue and heartbeats wait for one.
    PERFORM set_config('synchronous_commit', 'local', true);
    INSERT INTO session (id, epoch, ttl, expires_at) VALUES (a.session, latest.number, a.ttl, clock_timestamp() + a.ttl);
    -- What the client has given up there may still wait for a standby: it does not repeat it.
    PERFORM FROM session WHERE id = ANY (a.former) ORDER BY id FOR UPDATE;
    done.gone := _tidy() || ARRAY(SELECT gone FROM unnest(a.former) AS old, unnest(_end(old, NULL)) AS gone);
    -- What names the database, also after a failover.
    done.answer := (
        SELECT json_build_object('database', concat_ws('/', system_identifier, current_database()))
        FROM pg_control_system());
END $$;

CREATE FUNCTION heartbeat(a arguments, OUT done outcome) LANGUAGE plpgsql AS $$
BEGIN
    UPDATE session SET beat = beat + 1, expires_at = clock_timestamp() + ttl WHERE id = a.session;
    -- Now, when nobody can end it.
    PERFORM _check(a.session);
END $$;

CREATE FUNCTION close(a arguments, OUT done outcome) LANGUAGE plpgsql AS $$
BEGIN
    done.gone := _end(a.session, NULL);
END $$;

-- Add a contender for each entry, or find those of the session. All have one token.
CREATE FUNCTION enqueue(a arguments, OUT done outcome) LANGUAGE plpgsql AS $$
DECLARE
    latest constant epoch := _epoch();
    keys constant key[] := ARRAY(SELECT (a.session, id, NULL, 0)::key FROM unnest(a.entries));
    place integer;
    here queue;
    queues queue[];
    mine bigint[];
    parts json[];
BEGIN
    IF latest.since + latest.pause > clock_timestamp() THEN
        RAISE 'another server answers, after a failover or from a backup: nothing is granted until %, when '
              'earlier grants have expired', latest.since + latest.pause USING ERRCODE = 'cannot_connect_now';
    END IF;
    -- First the locks, in one order everywhere, and then, in a newer snapshot, all that is read: so
    -- tokens are in the order of the commits.
    FOR place IN SELECT p FROM generate_subscripts(a.entries, 1) AS p ORDER BY a.entries[p].name COLLATE "C" LOOP
        LOOP
            SELECT * INTO here FROM queue WHERE root = a.root AND name = a.entries[place].name FOR UPDATE;
            EXIT WHEN FOUND;
            INSERT INTO queue (root, name) VALUES (a.root, a.entries[place].name) ON CONFLICT DO NOTHING;
        END LOOP;
        queues[place] := here;
    END LOOP;
    -- The client has given it up meanwhile, and looks for what comes late for 81 s. It sent the `clock`
    -- that it knew, and repeats it with that of this answer, for the clock may have been set.
    IF clock_timestamp() > to_timestamp(a.clock) + interval '60 s' THEN
        RETURN;
    END IF;
    PERFORM _check(a.session);
    mine := ARRAY(SELECT token FROM _find(keys));
    IF cardinality(mine) < cardinality(keys) THEN
        -- What is left of a set.
        done.gone := _remove(keys);
        mine[1] := latest.number::bigint << 39 | nextval('token');
        INSERT INTO contender (queue, token, session, id, claim, owner, value)
        SELECT (queues[p]).id, mine[1], a.session, (a.entries[p]).id, (a.entries[p]).claim, (a.entries[p]).owner, (a.entries[p]).value
        FROM generate_subscripts(a.entries, 1) AS p;
        done.places := ARRAY(SELECT concat(a.root, ' queue:', name) FROM unnest(a.entries));
        -- Names that are used once, for weeks.
        IF mine[1] % 100 = 0 THEN
            done.gone := done.gone || _tidy();
        END IF;
    END IF;
    FOR place IN 1 .. cardinality(keys) LOOP
        here := queues[place];
        parts[place] := _part(here, mine[1], a.entries[place].nearest, NULL);
        -- Seldom, for dead versions of this row are read, too.
        IF mine[1] - here.floor > 200 AND json_array_length(parts[place] -> 1) = 1 THEN
            UPDATE queue SET floor = mine[1] WHERE id = here.id;
        END IF;
    END LOOP;
    done.answer := array_to_json(parts);
END $$;

-- Remove contenders; which have left, and those that a transaction keeps, with its process if it is a
-- program's. What it `kept` before and has let go counts as left, whoever has removed it.
CREATE FUNCTION withdraw(a arguments, OUT done outcome) LANGUAGE plpgsql AS $$
BEGIN
    done.gone := _remove(a.contenders);
    IF a.kept <> '{}' THEN
        done.gone := ARRAY(
            SELECT k FROM unnest(a.kept) AS k
            WHERE NOT EXISTS (SELECT FROM contender c WHERE (c.queue, c.token) = (k.queue, k.token)));
    END IF;
    done.answer := json_build_array(
        (SELECT coalesce(json_agg(json_build_array(id, token)), '[]') FROM unnest(done.gone)),
        (SELECT coalesce(json_agg(to_jsonb(c) || jsonb_build_object('pid', (
            SELECT min(pid) FROM pg_locks
            WHERE locktype = 'advisory' AND objsubid = 1 AND classid::bigint << 32 | objid::bigint = c.token
              AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
        ))), '[]') FROM _find(a.contenders) AS c));
END $$;

CREATE FUNCTION publish(a arguments, OUT done outcome) LANGUAGE plpgsql AS $$
DECLARE
    mine contender;
BEGIN
    PERFORM _check(a.session);
    SELECT * INTO mine FROM _find(a.contenders);
    UPDATE contender c SET value = a.value, version = a.version + 1
    WHERE (queue, token, version) = (mine.queue, mine.token, a.version) RETURNING ARRAY[c] INTO done.changed;
    SELECT * INTO mine FROM _find(a.contenders);
    done.answer := to_json(CASE WHEN mine.id IS NULL THEN 'evicted'
                                WHEN (mine.version, mine.value) = (a.version + 1, a.value) THEN 'done' ELSE 'version' END);
END $$;

-- Look at what a client watches: it saw the `beat` of a session for its ttl, so that has ended, as those of
-- earlier epochs have. Of each contender that is there: id, token, version, session, and its beat and
-- ttl. Follow `places` for a minute.
CREATE FUNCTION look(a arguments, OUT done outcome) LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO follower
    SELECT place, a.caller, clock_timestamp() + interval '60 s' FROM unnest(a.places) AS place
    ON CONFLICT (place, channel) DO UPDATE SET until = excluded.until;
    SELECT array_agg(gone) INTO done.gone FROM (
        SELECT DISTINCT s.id, s.beat FROM _epoch() AS latest, unnest(a.contenders) AS k, LATERAL (
            SELECT * FROM session WHERE id = k.session OFFSET 0
        ) AS s WHERE s.ended OR s.epoch < latest.number OR s.beat = k.beat
    ) AS old, unnest(_end(id, beat)) AS gone;
    SELECT coalesce(json_agg(json_build_array(
        c.id, token, version, session, CASE WHEN ended THEN -1 ELSE beat END, extract(epoch FROM ttl))), '[]')
    INTO done.answer FROM _find(a.contenders) AS c JOIN session s ON s.id = session;
END $$;

CREATE FUNCTION snapshot(a arguments) RETURNS json LANGUAGE plpgsql AS $$
DECLARE
    here queue;
BEGIN
    IF a.session IS NOT NULL THEN
        PERFORM _check(a.session);
    END IF;
    SELECT * INTO here FROM queue WHERE (root, name) = (a.root, a.name);
    RETURN _part(here, a.upto, a.nearest, a.compatible);
END $$;

CREATE FUNCTION snapshots(a arguments) RETURNS json LANGUAGE plpgsql AS $$
BEGIN
    RETURN (
        SELECT coalesce(json_agg(_part(q, 9223372036854775807, NULL, NULL) ORDER BY place), '[]')
        FROM unnest(a.entries) WITH ORDINALITY AS e(name, id, claim, owner, value, nearest, place)
        LEFT JOIN queue q ON (q.root, q.name) = (a.root, e.name));
END $$;

CREATE FUNCTION queues(a arguments) RETURNS json LANGUAGE sql AS $$
    SELECT coalesce(json_agg(name), '[]') FROM queue q
    WHERE root = a.root AND EXISTS (SELECT FROM contender WHERE queue = q.id)
$$;

-- What a folder holds, or one key of it; null unless the guards are in their queues and sessions.
CREATE FUNCTION read(a arguments) RETURNS json LANGUAGE sql AS $$
    SELECT CASE WHEN cardinality(a.contenders) = (SELECT count(*) FROM _find(a.contenders))
                 AND NOT _have_ended(a.contenders) THEN (
        SELECT coalesce(json_agg(json_build_array(folder || name, encode(value, 'hex'), version) ORDER BY name), '[]')
        FROM (
            SELECT * FROM data d WHERE d.root = a.root AND d.folder = a.folder AND a.name IS NULL
            UNION ALL
            SELECT * FROM data d WHERE d.root = a.root AND d.folder = a.folder AND d.name = a.name
        ) AS found
    ) END
$$;

-- The nearest names in a folder, before a name and from it on; all for a null.
CREATE FUNCTION names(a arguments) RETURNS json LANGUAGE sql AS $$
    SELECT coalesce(json_agg(name ORDER BY name), '[]') FROM (
        (SELECT name FROM data d WHERE d.root = a.root AND d.folder = a.folder AND d.name < a.name ORDER BY d.name LIMIT a.nearest)
        UNION ALL
        (SELECT name FROM data d WHERE d.root = a.root AND d.folder = a.folder AND d.name >= a.name ORDER BY d.name LIMIT a.nearest)
    ) AS found
$$;

-- Do all operations or none: the verbs are put, delete, expect and read.
CREATE FUNCTION write(a arguments, OUT done outcome) LANGUAGE plpgsql AS $$
DECLARE
    unmet integer;
BEGIN
    IF NOT _admit(a.contenders) OR _have_ended(a.contenders) THEN
        done.answer := json_build_object('evicted', true);
        RETURN;
    END IF;
    -- All keys in one order, also those that are missing. What is read after this is newer.
    PERFORM pg_advisory_xact_lock(number) FROM (
        SELECT DISTINCT hashtextextended(concat(a.root, ' ', folder, name), 0) AS number
        FROM unnest(a.operations) WHERE verb <> 'read' ORDER BY number
    ) AS locked;
    SELECT place INTO unmet
    FROM unnest(a.operations) WITH ORDINALITY AS o(verb, folder, name, version, value, place)
    LEFT JOIN data d ON (d.root, d.folder, d.name) = (a.root, o.folder, o.name)
    WHERE verb = 'expect' AND coalesce(d.version, 0) <> o.version LIMIT 1;
    IF unmet IS NOT NULL THEN
        done.answer := json_build_object('version', unmet - 1);
        RETURN;
    END IF;
    INSERT INTO data SELECT a.root, folder, name, value, 1 FROM unnest(a.operations) WHERE verb = 'put'
    ON CONFLICT (root, folder, name) DO UPDATE SET value = excluded.value, version = data.version + 1;
    DELETE FROM data d USING unnest(a.operations) AS o
    WHERE verb = 'delete' AND (d.root, d.folder, d.name) = (a.root, o.folder, o.name);
    SELECT array_agg(a.root || place) INTO done.places
    FROM unnest(a.operations), unnest(ARRAY[' key:' || folder || name, ' folder:' || folder]) AS place
    WHERE verb IN ('put', 'delete');
    done.answer := json_build_object(
        'time', extract(epoch FROM clock_timestamp()),
        'values', (SELECT coalesce(json_agg(json_build_array(folder || name, encode(d.value, 'hex'), d.version)), '[]')
                   FROM unnest(a.operations) AS o JOIN data d USING (folder, name)
                   WHERE d.root = a.root AND verb = 'read'));
END $$;

CREATE FUNCTION clock(a arguments) RETURNS json LANGUAGE sql AS $$
    SELECT to_json(extract(epoch FROM clock_timestamp()))
$$;

-- A notification that shows whether any arrive.
CREATE FUNCTION probe(a arguments) RETURNS json LANGUAGE sql AS $$
    SELECT pg_notify(a.caller, 'probe');
    SELECT NULL::json
$$;

-- Notify the clients that wait for what has happened, and has been committed before: the contenders
-- that a departure may admit, those that are converting, and those that follow a place. What the
-- `caller` itself did, it knows. What gets lost here is found by a look.
CREATE FUNCTION _notify(caller text, news outcome) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    moved constant contender[] := news.gone || news.changed;
    its contender;
    behind record;
    sessions text[];
    passed integer;
    message text;
BEGIN
    -- A client that does not listen holds up all others: this commit would fail.
    IF pg_notification_queue_usage() > 0.9 THEN
        RETURN;
    END IF;
    FOREACH its IN ARRAY coalesce(moved, '{}') LOOP
        message := format('left %s %s', its.id, its.token);
        IF its = ANY (news.changed) THEN
            message := format('value %s %s %s', its.id, its.token, its.version);
        END IF;
        sessions := its.session || ARRAY(SELECT session FROM contender WHERE queue = its.queue AND claim = 'convertible');
        passed := 0;
        FOR behind IN SELECT session, claim FROM contender WHERE queue = its.queue AND token > its.token ORDER BY token LOOP
            sessions := sessions || behind.session;
            passed := passed + 1;
            EXIT WHEN behind.claim = 'lock' OR behind.claim = 'permit' || passed;
        END LOOP;
        PERFORM pg_notify(channel, message)
        FROM (SELECT DISTINCT split_part(unnest(sessions), '-', 1) AS channel) AS reached WHERE channel <> caller;
    END LOOP;
    PERFORM pg_notify(channel, 'place ' || place) FROM follower
    WHERE until > clock_timestamp() AND place = ANY (news.places || ARRAY(
        SELECT concat(root, ' queue:', name) FROM queue WHERE id IN (SELECT queue FROM unnest(moved))));
END $$;

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

-- Call a function above, commit, and notify others in a second transaction. A procedure that commits can
-- neither have a search_path nor run as another role. The answer comes with a revision and the clock.
CREATE PROCEDURE request(verb text, given jsonb, INOUT answer json DEFAULT NULL) LANGUAGE plpgsql AS $$
DECLARE
    arguments coordlock.arguments;
    done coordlock.outcome;
    revision numeric;
BEGIN
    -- Whatever the role's defaults are: a commit is durable, and each statement sees what is committed.
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
    revision := coordlock._revision();
    arguments := pg_catalog.jsonb_populate_record(NULL::coordlock.arguments, given);
    EXECUTE pg_catalog.format('SELECT * FROM coordlock.%I($1)', verb) INTO done USING arguments;
    IF NOT ROW(done.gone, done.changed, done.places) IS NULL THEN
        COMMIT;
        -- This transaction sees who waits by now. It waits for no disk, for it has a lock that all
        -- commits with a NOTIFY in this cluster want.
        SET TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE;
        revision := coordlock._revision();
        PERFORM pg_catalog.set_config('synchronous_commit', 'off', true);
        PERFORM coordlock._notify(arguments.caller, done);
    END IF;
    answer := pg_catalog.json_build_array(
        revision, done.answer, extract(epoch FROM pg_catalog.clock_timestamp()));
END $$;

INSERT INTO epoch SELECT _minute(), _timeline(), to_timestamp(0), interval '60 s' WHERE NOT EXISTS (SELECT FROM epoch);
