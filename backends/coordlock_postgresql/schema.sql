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
DROP TYPE IF EXISTS arguments, outcome, change, key, entry, operation;

-- One row. Another timeline or another cluster begins a new epoch, for the data may have gone back: earlier
-- sessions have ended, and nothing is granted for the `pause`.
CREATE TABLE IF NOT EXISTS epoch (
    number integer NOT NULL CHECK (number BETWEEN 1 AND 16777215),
    timeline text NOT NULL COLLATE "C",
    since timestamptz NOT NULL,
    pause interval NOT NULL
);
CREATE UNIQUE INDEX IF NOT EXISTS single ON epoch ((true));

-- The lower 39 bits of all tokens. A sequence goes on after a crash, and the epoch after a failover.
CREATE SEQUENCE IF NOT EXISTS token MAXVALUE 549755813887 NO CYCLE;

-- Its id is the client's channel, a minus, and a number. It has ended when a client that waits saw no
-- other `beat` for its `ttl`. `expires_at` is for those that nobody waits for. Neither is indexed: each
-- heartbeat would add to the index.
CREATE TABLE IF NOT EXISTS session (
    id text PRIMARY KEY COLLATE "C",
    epoch integer NOT NULL,
    timeline text NOT NULL COLLATE "C",
    -- When the pause of its epoch is over.
    granted_from timestamptz NOT NULL,
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
    place text NOT NULL COLLATE "C" GENERATED ALWAYS AS (root || ' queue:' || name) STORED,
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

-- What others have to learn of a place: that a contender left its queue, or published its value in a
-- `version`, or without a token, that something is new.
CREATE TYPE change AS (place text, queue bigint, token bigint, session text, id text, version bigint);

-- What a request is about; each has some of it.
CREATE TYPE arguments AS (
    root text, caller text, session text, clock double precision, ttl interval, former text[], entries entry[],
    contenders key[], kept change[], places text[], name text, upto bigint, nearest integer, compatible text[],
    folder text, operations operation[], value bytea, version bigint
);

-- What it has done.
CREATE TYPE outcome AS (answer json, changes change[]);

-- Functions are in PL/pgSQL, which keeps their plans. Contenders and sessions are found one by one, by
-- the index: a join would read all of them while the tables have no statistics.

-- Names the history of the data: the cluster, the timeline that is written now, and the table, which a
-- restored dump makes anew. The control file would name the timeline of the last checkpoint.
CREATE FUNCTION _timeline() RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    RETURN concat_ws('/', (pg_control_system()).system_identifier,
                     left(pg_walfile_name(pg_current_wal_insert_lsn()), 8), 'coordlock.epoch'::regclass::oid);
END $$;

-- Minutes since 2026. Epochs are dated, for a number that only counts on comes again when another copy
-- of the same data is promoted or restored. Two copies can't both grant in the epochs of one minute,
-- since the first had to pause longer.
CREATE FUNCTION _minute() RETURNS integer LANGUAGE sql AS $$
    SELECT ((extract(epoch FROM clock_timestamp()) - 1767225600) / 60)::integer
$$;

-- The epoch; a new one if another timeline is written. Where the clock was set back, the pause counts
-- from now on.
CREATE FUNCTION _epoch(OUT latest epoch) LANGUAGE plpgsql AS $$
BEGIN
    UPDATE epoch SET
        number = CASE timeline WHEN _timeline() THEN number ELSE greatest(number + 1, _minute()) END,
        timeline = _timeline(), since = clock_timestamp()
    WHERE timeline <> _timeline() OR since > clock_timestamp();
    SELECT * INTO latest FROM epoch;
END $$;

-- Fail unless the session of a request lives. Whoever reads a queue to be granted asks this, too: on the
-- old primary a contender of an earlier epoch may have been evicted.
CREATE FUNCTION _check(its session) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF its.ended IS NOT false OR its.timeline <> _timeline() THEN
        RAISE 'it expired, an operator deleted it, or another server answers (failover, restored backup)'
        USING ERRCODE = 'CLOST';
    END IF;
END $$;

-- Those of these contenders that are there.
CREATE FUNCTION _find(keys key[]) RETURNS SETOF contender LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN QUERY SELECT c.* FROM unnest(keys) AS k, LATERAL (
        SELECT * FROM contender WHERE session = k.session AND id = k.id AND token = coalesce(k.token, token) OFFSET 0
    ) AS c;
END $$;

-- The contenders of a queue up to a token in ascending order, behind how many others they stand. Of
-- those before it the `nearest`, or without that those of no `compatible` claim.
CREATE FUNCTION _part(here queue, upto bigint, nearest integer, compatible text[]) RETURNS json
LANGUAGE plpgsql STABLE AS $$
DECLARE
    part record;
    omitted bigint := 0;
BEGIN
    SELECT count(*) AS size, min(token) AS first, coalesce(json_agg(json_build_array(
        id, token, claim, session, owner, encode(value, 'hex'), version) ORDER BY token), '[]') AS listed
    INTO part FROM (
        SELECT * FROM contender c
        WHERE queue = here.id AND token BETWEEN here.floor AND upto
          AND (token = upto OR claim <> ALL (coalesce(compatible, '{}')))
        ORDER BY token DESC LIMIT nearest + 1
    ) AS near;
    IF part.size > nearest THEN
        SELECT count(*) INTO omitted FROM contender
        WHERE queue = here.id AND token >= here.floor AND token < part.first;
    END IF;
    RETURN json_build_array(omitted, part.listed);
END $$;

-- Remove a contender. Never waits: what another transaction has locked stays.
CREATE FUNCTION _remove(its key, OUT gone change[]) LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM contender c USING queue q WHERE q.id = c.queue AND c.ctid = (
        SELECT ctid FROM contender
        WHERE session = its.session AND id = its.id AND token = coalesce(its.token, token)
        FOR UPDATE SKIP LOCKED)
    RETURNING ARRAY[(q.place, c.queue, c.token, c.session, c.id, NULL)::change] INTO gone;
END $$;

-- End a session unless its beat is another one; what has left. Never waits.
CREATE FUNCTION _end(old text, at_beat bigint, OUT gone change[]) LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM session WHERE id = old AND beat = coalesce(at_beat, beat) FOR UPDATE SKIP LOCKED;
    IF FOUND THEN
        gone := ARRAY(SELECT unnest(_remove((session, id, token, NULL))) FROM contender c WHERE session = old);
        UPDATE session SET ended = true WHERE id = old AND NOT ended;
        DELETE FROM session WHERE id = old AND NOT EXISTS (SELECT FROM contender WHERE session = old);
    END IF;
END $$;

-- Remove what nobody waits for: sessions of earlier epochs, and those a minute overdue, for the server's
-- clock may have been set forward; followers, and queues without contenders.
CREATE FUNCTION _tidy() RETURNS change[] LANGUAGE plpgsql AS $$
DECLARE
    empty bigint[];
BEGIN
    DELETE FROM follower WHERE until < clock_timestamp();
    empty := ARRAY(
        SELECT id FROM queue q WHERE NOT EXISTS (SELECT FROM contender WHERE queue = q.id)
        LIMIT 100 FOR UPDATE SKIP LOCKED);
    DELETE FROM queue q WHERE id = ANY (empty) AND NOT EXISTS (SELECT FROM contender WHERE queue = q.id);
    RETURN ARRAY(
        SELECT unnest(_end(id, beat)) FROM (
            SELECT id, beat FROM session, _timeline() AS current
            WHERE ended OR timeline <> current OR expires_at < clock_timestamp() - interval '60 s' LIMIT 100
        ) AS old);
END $$;

-- How many of these contenders are in their queues. Until this transaction ends, none of them leaves.
CREATE FUNCTION _keep(keys key[]) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
    RETURN (SELECT count(*) FROM unnest(keys) AS k, LATERAL (
        SELECT FROM contender WHERE session = k.session AND id = k.id AND token = k.token FOR KEY SHARE
    ) AS kept);
END $$;

-- Whether contenders are in their queues, and their sessions live.
CREATE FUNCTION _are_there(keys key[]) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    RETURN cardinality(keys) = (
        SELECT count(*) FROM _find(keys) AS c, _timeline() AS current
        WHERE (SELECT NOT ended AND timeline = current FROM session WHERE session.id = c.session));
END $$;

-- For the program's own transaction: keep contenders in their queues until it ends, also if their
-- session ends meanwhile, or remove them with its commit. A program that hangs in it, or reads no answer,
-- is ended after the seconds that the session has `left`. The answer is held, lost, or snapshot: for a
-- snapshot that is older than the contender shows neither. The advisory lock only shows who guards, and
-- waits for no lock of the program's own: see `withdraw`.
CREATE FUNCTION guard(contenders json, seconds_left double precision, removes boolean) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    keys constant key[] := ARRAY(SELECT k FROM json_populate_recordset(NULL::key, contenders) AS k);
    timeout constant interval := make_interval(secs => greatest(0.001, seconds_left));
    kept bigint;
    name text;
BEGIN
    PERFORM pg_try_advisory_xact_lock_shared(token) FROM unnest(keys);
    BEGIN
        kept := _keep(keys);
    EXCEPTION WHEN serialization_failure THEN -- it has left since the snapshot
        RETURN 'lost';
    END;
    IF kept < cardinality(keys) AND current_setting('transaction_isolation') NOT LIKE 'read %' THEN
        RETURN 'snapshot';
    END IF;
    IF NOT _are_there(keys) THEN
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

-- The requests. `request` calls them with their arguments.

-- Begin a session in place of the client's `former` ones.
CREATE FUNCTION open(a arguments, OUT done outcome) LANGUAGE plpgsql AS $$
DECLARE
    latest constant epoch := _epoch();
BEGIN
    -- A session that no standby has is granted nothing, because enqueue and heartbeats wait for one.
    PERFORM set_config('synchronous_commit', 'local', true);
    INSERT INTO session (id, epoch, timeline, granted_from, ttl, expires_at) VALUES (
        a.session, latest.number, latest.timeline, latest.since + latest.pause, a.ttl, clock_timestamp() + a.ttl);
    IF a.ttl > latest.pause THEN
        RAISE 'ttl=% is longer than the % s for which nothing is granted after a failover: give a shorter one, '
              'or set it with `coordlock setup postgresql --max-ttl`',
              extract(epoch FROM a.ttl)::real, extract(epoch FROM latest.pause)::real USING ERRCODE = 'invalid_parameter_value';
    END IF;
    -- What the client has given up there may still wait for a standby: it does not repeat it.
    PERFORM FROM session WHERE id = ANY (a.former) ORDER BY id FOR UPDATE;
    done.changes := _tidy() || ARRAY(SELECT unnest(_end(old, NULL)) FROM unnest(a.former) AS old);
    -- What names the database, also after a failover.
    done.answer := json_build_object(
        'database', concat_ws('/', (pg_control_system()).system_identifier, current_database()));
END $$;

CREATE FUNCTION heartbeat(a arguments, OUT done outcome) LANGUAGE plpgsql AS $$
DECLARE
    longest constant interval := (_epoch()).pause;
    its session;
BEGIN
    UPDATE session SET
        beat = beat + 1, expires_at = clock_timestamp() + ttl,
        granted_from = least(granted_from, clock_timestamp() + longest) -- where the clock was set back
    WHERE id = a.session RETURNING * INTO its;
    PERFORM _check(its);
END $$;

CREATE FUNCTION close(a arguments, OUT done outcome) LANGUAGE plpgsql AS $$
BEGIN
    done.changes := _end(a.session, NULL);
END $$;

-- Add a contender for each entry, or find those of the session. All have one token.
CREATE FUNCTION enqueue(a arguments, OUT done outcome) LANGUAGE plpgsql AS $$
DECLARE
    its_entry entry;
    here queue;
    queues queue[];
    its session;
    is_new boolean := false;
    mine bigint;
    parts json[];
BEGIN
    -- First the locks, in the order of the entries, which is one everywhere, and then, in a newer
    -- snapshot, all that is read: so tokens are in the order of the commits.
    FOREACH its_entry IN ARRAY a.entries LOOP
        LOOP
            SELECT * INTO here FROM queue WHERE root = a.root AND name = its_entry.name FOR UPDATE;
            EXIT WHEN FOUND;
            INSERT INTO queue (root, name) VALUES (a.root, its_entry.name) ON CONFLICT DO NOTHING;
        END LOOP;
        queues := queues || here;
    END LOOP;
    -- It does not end before this transaction.
    SELECT * INTO its FROM session WHERE id = a.session FOR KEY SHARE;
    PERFORM _check(its);
    IF its.granted_from > clock_timestamp() THEN
        RAISE 'another server answers, after a failover or from a backup: nothing is granted until %, when '
              'earlier grants have expired', its.granted_from USING ERRCODE = 'cannot_connect_now';
    END IF;
    -- The client has given it up meanwhile, and looks for what comes late for 81 s. It sent the `clock`
    -- that it knew, and repeats it with that of this answer, for the clock may have been set.
    IF clock_timestamp() > to_timestamp(a.clock) + interval '60 s' THEN
        RETURN;
    END IF;
    FOREACH its_entry IN ARRAY a.entries LOOP
        SELECT token INTO mine FROM contender WHERE session = its.id AND id = its_entry.id;
        is_new := is_new OR NOT FOUND;
    END LOOP;
    IF is_new THEN
        mine := its.epoch::bigint << 39 | nextval('token');
        -- What is left of a set.
        IF cardinality(a.entries) > 1 THEN
            done.changes := ARRAY(SELECT unnest(_remove((its.id, id, NULL, NULL))) FROM unnest(a.entries));
        END IF;
    END IF;
    FOR place IN 1 .. cardinality(queues) LOOP
        its_entry := a.entries[place];
        here := queues[place];
        IF is_new THEN
            INSERT INTO contender (queue, token, session, id, claim, owner, value) VALUES (
                here.id, mine, its.id, its_entry.id, its_entry.claim, its_entry.owner, its_entry.value);
            done.changes := done.changes || (here.place, NULL, NULL, NULL, NULL, NULL)::change;
        END IF;
        parts[place] := _part(here, mine, its_entry.nearest, NULL);
        -- Seldom, for dead versions of this row are read, too.
        IF mine - here.floor > 200 AND json_array_length(parts[place] -> 1) = 1 THEN
            UPDATE queue SET floor = mine WHERE id = here.id;
        END IF;
    END LOOP;
    -- Names that are used once, for weeks. These queues have contenders by now.
    IF is_new AND mine % 100 = 0 THEN
        done.changes := done.changes || _tidy();
    END IF;
    done.answer := array_to_json(parts);
END $$;

-- Remove contenders; which have left, and those that a transaction keeps, with its process if it is a
-- program's. What it `kept` before and has let go counts as left, whoever has removed it.
CREATE FUNCTION withdraw(a arguments, OUT done outcome) LANGUAGE plpgsql AS $$
DECLARE
    its key;
    kept json;
BEGIN
    FOREACH its IN ARRAY a.contenders LOOP
        done.changes := done.changes || _remove(its);
    END LOOP;
    IF a.kept <> '{}' THEN
        done.changes := ARRAY(
            SELECT k FROM unnest(a.kept) AS k
            WHERE NOT EXISTS (SELECT FROM contender c WHERE (c.queue, c.token) = (k.queue, k.token)));
    END IF;
    IF cardinality(done.changes) = cardinality(a.contenders) THEN
        done.answer := json_build_array(done.changes, '{}'::text[]);
        RETURN;
    END IF;
    SELECT json_agg(to_jsonb((q.place, c.queue, c.token, c.session, c.id, NULL)::change) || jsonb_build_object('pid', (
        SELECT min(pid) FROM pg_locks
        WHERE locktype = 'advisory' AND objsubid = 1 AND classid::bigint << 32 | objid::bigint = c.token
          AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
    ))) INTO kept FROM _find(a.contenders) AS c, LATERAL (SELECT * FROM queue WHERE id = c.queue OFFSET 0) AS q;
    done.answer := json_build_array(coalesce(done.changes, '{}'), coalesce(kept, '[]'));
END $$;

CREATE FUNCTION publish(a arguments, OUT done outcome) LANGUAGE plpgsql AS $$
DECLARE
    mine contender;
BEGIN
    PERFORM _check((SELECT s FROM session s WHERE id = a.session));
    SELECT * INTO mine FROM _find(a.contenders);
    UPDATE contender c SET value = a.value, version = a.version + 1 FROM queue q
    WHERE (c.queue, c.token, c.version) = (mine.queue, mine.token, a.version) AND q.id = c.queue
    RETURNING ARRAY[(q.place, c.queue, c.token, c.session, c.id, c.version)::change] INTO done.changes;
    SELECT * INTO mine FROM _find(a.contenders);
    done.answer := to_json(CASE WHEN mine.id IS NULL THEN 'evicted'
                                WHEN (mine.version, mine.value) = (a.version + 1, a.value) THEN 'done' ELSE 'version' END);
END $$;

-- Look at what a client watches: it saw the `beat` of a session for its ttl, so that has ended, as those of
-- earlier epochs have. Of each contender that is there: id, token, version, session, and its beat and
-- ttl. Follow `places` for a minute.
CREATE FUNCTION look(a arguments, OUT done outcome) LANGUAGE plpgsql AS $$
BEGIN
    -- Else the client would take the end of its session for evictions.
    IF a.session IS NOT NULL THEN
        PERFORM _check((SELECT s FROM session s WHERE id = a.session));
    END IF;
    INSERT INTO follower
    SELECT place, a.caller, clock_timestamp() + interval '60 s' FROM unnest(a.places) AS place
    ON CONFLICT (place, channel) DO UPDATE SET until = excluded.until;
    done.changes := ARRAY(
        SELECT unnest(_end(id, beat)) FROM (
            SELECT DISTINCT s.id, s.beat FROM _timeline() AS current, unnest(a.contenders) AS k, LATERAL (
                SELECT * FROM session WHERE id = k.session OFFSET 0
            ) AS s WHERE s.ended OR s.timeline <> current OR s.beat = k.beat
        ) AS old);
    SELECT coalesce(json_agg(json_build_array(
        c.id, token, version, session, CASE WHEN ended THEN -1 ELSE beat END, extract(epoch FROM ttl))), '[]')
    INTO done.answer FROM _find(a.contenders) AS c, LATERAL (
        SELECT * FROM session WHERE id = c.session OFFSET 0
    ) AS s;
END $$;

-- The queues with the names `places`.
CREATE FUNCTION snapshot(a arguments, OUT done outcome) LANGUAGE plpgsql AS $$
BEGIN
    IF a.session IS NOT NULL THEN
        PERFORM _check((SELECT s FROM session s WHERE id = a.session));
    END IF;
    SELECT coalesce(json_agg(_part(
        (SELECT q FROM queue q WHERE root = a.root AND name = e.name), a.upto, a.nearest, a.compatible) ORDER BY place), '[]')
    INTO done.answer FROM unnest(a.places) WITH ORDINALITY AS e(name, place);
END $$;

CREATE FUNCTION queues(a arguments, OUT done outcome) LANGUAGE plpgsql AS $$
BEGIN
    SELECT coalesce(json_agg(name), '[]') INTO done.answer FROM queue q
    WHERE root = a.root AND EXISTS (SELECT FROM contender WHERE queue = q.id);
END $$;

-- What a folder holds, or one key of it; null unless the guards are in their queues and sessions.
CREATE FUNCTION read(a arguments, OUT done outcome) LANGUAGE plpgsql AS $$
BEGIN
    IF _are_there(a.contenders) THEN
        SELECT coalesce(json_agg(json_build_array(folder || name, encode(value, 'hex'), version) ORDER BY name), '[]')
        INTO done.answer FROM (
            SELECT * FROM data WHERE root = a.root AND folder = a.folder AND a.name IS NULL
            UNION ALL
            SELECT * FROM data WHERE root = a.root AND folder = a.folder AND name = a.name
        ) AS found;
    END IF;
END $$;

-- The nearest names in a folder, before a name and from it on; all for a null.
CREATE FUNCTION names(a arguments, OUT done outcome) LANGUAGE plpgsql AS $$
BEGIN
    SELECT coalesce(json_agg(name ORDER BY name), '[]') INTO done.answer FROM (
        (SELECT name FROM data WHERE root = a.root AND folder = a.folder AND name < a.name
         ORDER BY data.name LIMIT a.nearest)
        UNION ALL
        (SELECT name FROM data WHERE root = a.root AND folder = a.folder AND name >= a.name
         ORDER BY data.name LIMIT a.nearest)
    ) AS found;
END $$;

-- Do all operations or none: the verbs are put, delete, expect and read.
CREATE FUNCTION write(a arguments, OUT done outcome) LANGUAGE plpgsql AS $$
DECLARE
    unmet integer;
BEGIN
    PERFORM _keep(a.contenders);
    IF NOT _are_there(a.contenders) THEN
        done.answer := json_build_object('evicted', true);
        RETURN;
    END IF;
    -- All keys in one order, also those that are missing. What is read after this is newer.
    PERFORM pg_advisory_xact_lock(number) FROM (
        SELECT DISTINCT hashtextextended(concat(a.root, ' ', folder, name), 0) AS number
        FROM unnest(a.operations) AS o WHERE verb <> 'read' ORDER BY number
    ) AS locked;
    SELECT place INTO unmet
    FROM unnest(a.operations) WITH ORDINALITY AS o(verb, folder, name, version, value, place)
    WHERE verb = 'expect' AND version <> coalesce((
        SELECT d.version FROM data d WHERE (d.root, d.folder, d.name) = (a.root, o.folder, o.name)), 0) LIMIT 1;
    IF unmet IS NOT NULL THEN
        done.answer := json_build_object('version', unmet - 1);
        RETURN;
    END IF;
    INSERT INTO data SELECT a.root, folder, name, value, 1
    FROM unnest(a.operations) AS o WHERE verb = 'put'
    ON CONFLICT (root, folder, name) DO UPDATE SET value = excluded.value, version = data.version + 1;
    DELETE FROM data d USING unnest(a.operations) AS o
    WHERE verb = 'delete' AND (d.root, d.folder, d.name) = (a.root, o.folder, o.name);
    done.changes := ARRAY(
        SELECT (a.root || place, NULL, NULL, NULL, NULL, NULL)::change
        FROM unnest(a.operations) AS o,
            unnest(ARRAY[' key:' || folder || name, ' folder:' || folder]) AS place
        WHERE verb IN ('put', 'delete'));
    done.answer := json_build_object(
        'time', extract(epoch FROM clock_timestamp()),
        'values', (SELECT coalesce(json_agg(json_build_array(d.folder || d.name, encode(d.value, 'hex'), d.version)), '[]')
                   FROM unnest(a.operations) AS o JOIN data d USING (folder, name)
                   WHERE d.root = a.root AND verb = 'read'));
END $$;

CREATE FUNCTION clock(a arguments, OUT done outcome) LANGUAGE plpgsql AS $$
BEGIN
    done.answer := to_json(extract(epoch FROM clock_timestamp()));
END $$;

-- A notification that shows whether any arrive.
CREATE FUNCTION probe(a arguments, OUT done outcome) LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify(a.caller, 'probe');
END $$;

-- Notify the clients that wait for what has happened, and has been committed before: the contenders
-- that a departure may admit, those that are converting, and those that follow a place. What the
-- `caller` itself did, it knows. What gets lost here is found by a look.
CREATE FUNCTION notify(caller text, changes change[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    its change;
    reached record;
    channel text;
    passed integer;
BEGIN
    -- A client that does not listen holds up all others: this commit would fail.
    IF pg_notification_queue_usage() > 0.9 THEN
        RETURN;
    END IF;
    FOREACH its IN ARRAY changes LOOP
        PERFORM pg_notify(f.channel, 'place ' || place) FROM follower f
        WHERE place = its.place AND until > clock_timestamp();
        CONTINUE WHEN its.token IS NULL;
        passed := -1;
        FOR reached IN
            SELECT its.session, '' AS claim
            UNION ALL
            SELECT session, claim FROM contender WHERE queue = its.queue AND claim = 'convertible'
            UNION ALL
            (SELECT session, claim FROM contender WHERE queue = its.queue AND token > its.token ORDER BY token)
        LOOP
            channel := split_part(reached.session, '-', 1);
            IF channel <> caller THEN
                PERFORM pg_notify(channel, CASE WHEN its.version IS NULL
                    THEN format('left %s %s', its.id, its.token)
                    ELSE format('value %s %s %s', its.id, its.token, its.version) END);
            END IF;
            passed := passed + 1;
            EXIT WHEN reached.claim IN ('lock', 'permit' || passed);
        END LOOP;
    END LOOP;
END $$;

-- What others call runs as the owner of the schema, and finds nothing but what is meant.
DO $$
DECLARE
    name regprocedure;
BEGIN
    FOR name IN SELECT oid FROM pg_proc WHERE pronamespace = 'coordlock'::regnamespace AND proname NOT LIKE '\_%' LOOP
        EXECUTE format(
            'ALTER FUNCTION %s SECURITY DEFINER SET search_path = pg_catalog, coordlock, pg_temp', name);
    END LOOP;
END $$;

-- Call a function above, commit, and notify others in a second transaction. A procedure that commits can
-- neither have a search_path nor run as another role. The answer comes with a revision, which is the
-- timeline and the place in its log, and the clock: a reading that begins after a revision shows what
-- was committed before it.
CREATE PROCEDURE request(verb text, given jsonb, INOUT answer json DEFAULT NULL) LANGUAGE plpgsql AS $$
DECLARE
    a coordlock.arguments;
    done coordlock.outcome;
    lsn pg_lsn;
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
    PERFORM pg_catalog.set_config('lock_timeout', '5s', true),
        -- Plans for one array are not made anew for the next.
        pg_catalog.set_config('plan_cache_mode', 'force_generic_plan', true);
    lsn := pg_catalog.pg_current_wal_insert_lsn();
    a := pg_catalog.jsonb_populate_record(a, given);
    CASE verb
        WHEN 'enqueue' THEN done := coordlock.enqueue(a);
        WHEN 'withdraw' THEN done := coordlock.withdraw(a);
        WHEN 'snapshot' THEN done := coordlock.snapshot(a);
        -- This plans anew each time.
        ELSE EXECUTE pg_catalog.format('SELECT * FROM coordlock.%I($1)', verb) INTO done USING a;
    END CASE;
    IF done.changes <> '{}' THEN
        COMMIT;
        -- This transaction sees who waits by now. It waits for no disk, for it has a lock that all
        -- commits with a NOTIFY in this cluster want.
        lsn := pg_catalog.pg_current_wal_insert_lsn();
        PERFORM pg_catalog.set_config('synchronous_commit', 'off', true);
        PERFORM coordlock.notify(a.caller, done.changes);
    END IF;
    answer := pg_catalog.json_build_array(
        ('x' || pg_catalog.left(pg_catalog.pg_walfile_name(lsn), 8))::bit(32)::bigint * 18446744073709551616 + (lsn - '0/0'),
        done.answer, extract(epoch FROM pg_catalog.clock_timestamp()));
END $$;

INSERT INTO epoch SELECT _minute(), _timeline(), to_timestamp(0), interval '60 s' WHERE NOT EXISTS (SELECT FROM epoch);
