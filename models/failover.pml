/* Failovers of PostgreSQL to a standby that lags: is each lock still granted to one client only?
 *
 * The standby has a prefix of the log, which is an earlier state of the primary. The old primary
 * answers nobody once the standby is promoted. With RESTORE the second failover is to the same copy
 * again: a backup, or a standby that never followed the first one.
 *
 * Bounds: one exclusive lock, two sessions that try once, FAILOVERS, and END ticks of time; the ttl
 * of both is TTL ticks. Requests, replies and clients may take any time. An operator may evict a
 * waiter. Only holders send heartbeats. With GUARD one of them may tie a transaction to its grant, by
 * a request that may come late. Asserted at each grant, renewal and guard: the other client does not
 * believe to hold the lock, and has no guarded transaction; and tokens grow from grant to grant. A
 * reaper is assumed to know when a deadline is over.
 *
 * Each of these takes one rule away, and must fail:
 * NO_EPOCH        tokens are the sequence's alone
 * COUNTED_EPOCH   the number of an epoch is not dated (with RESTORE)
 * SHORT_PAUSE     a new epoch grants before a ttl is over (with TTL=2)
 * OLD_WAITERS     a waiter of an earlier epoch may still be granted
 * OLD_GRANTS      a heartbeat renews a session of an earlier epoch
 * OLD_GUARDS      a contender of an earlier epoch may still be guarded (with GUARD)
 * FREE_GUARD      a guard does not keep its contender in the queue (with GUARD)
 */
#ifndef FAILOVERS
#define FAILOVERS 1
#endif
#ifndef END
#define END 3
#endif
#ifndef TTL
#define TTL 1
#endif
#ifdef SHORT_PAUSE
#define PAUSE (TTL - 1)
#else
#define PAUSE TTL             /* the longest ttl that the schema allows */
#endif
#define BIT(c) (1 << (c))
#define HAS(set, c) ((set) & BIT(c))

/* What is in the database, and what the log carries to the standby. */
typedef Database {
	byte epoch, timeline, since, sequence;
	byte rows;                /* contenders that are in the queue, one for each client */
	byte token[2]             /* of a contender: its epoch, times 8, and the sequence's number */
}
Database db, standby, nothing;
byte timeline = 1;            /* of the server that answers */

byte now;
byte granted;                 /* clients that were granted the lock, and do not know of a loss */
byte deadline[2];
byte guarded;                 /* clients whose guarded transaction is open on this server */
byte last;                    /* the highest token that was granted */

#define IS_OLD(c) (db.token[c] / 8 < db.epoch)
#define QUIET (db.epoch > 1 && now < db.since + PAUSE)
#ifdef OLD_GRANTS
#define RENEWS(c) true
#else
#define RENEWS(c) (HAS(db.rows, c) && !IS_OLD(c))
#endif
#ifdef OLD_WAITERS
#define MAY_HOLD(c) true
#else
#define MAY_HOLD(c) (db.timeline == timeline && !IS_OLD(c))
#endif
#ifdef OLD_GUARDS
#define MAY_GUARD(c) true
#else
#define MAY_GUARD(c) MAY_HOLD(c)
#endif
#ifdef FREE_GUARD
#define MAY_LEAVE(c) HAS(db.rows, c)
#else
#define MAY_LEAVE(c) (HAS(db.rows, c) && !HAS(guarded, c))
#endif
/* No heartbeat for a ttl was seen, so the deadline is over; or it is of an earlier epoch. */
#define IS_OVER(c) (now >= deadline[c] || IS_OLD(c))

#define OTHER (1 - me)
#define IS_FIRST (!HAS(db.rows, OTHER) || db.token[me] < db.token[OTHER])
#define IS_ALONE (!HAS(guarded, OTHER) && (!HAS(granted, OTHER) || now >= deadline[OTHER]))

inline copy(to, from) {
	to.epoch = from.epoch; to.timeline = from.timeline; to.since = from.since;
	to.sequence = from.sequence; to.rows = from.rows;
	to.token[0] = from.token[0]; to.token[1] = from.token[1]
}

/* Each request begins with it: a new epoch, if another timeline answers. */
inline see_epoch() {
	if
	:: db.timeline != timeline ->
		db.timeline = timeline;
		db.since = now;
#ifndef NO_EPOCH
		db.epoch = db.epoch + 1;
#ifndef COUNTED_EPOCH
		if
		:: db.epoch < 2 + now / PAUSE -> db.epoch = 2 + now / PAUSE
		:: else
		fi
#endif
#endif
	:: else
	fi
}

inline remove(c) {
	db.rows = db.rows & ~BIT(c);
	db.token[c] = 0
}

proctype client(byte me) {
	byte sent = now + 1;      /* the time of a request, plus 1; 0 if none is under way */
	do
	:: d_step {               /* opens a session, and enqueues, if not refused for the pause */
			sent ->
			see_epoch();
			if
			:: QUIET -> sent = now + 1
			:: else ->
				db.sequence++;
				db.token[me] = db.epoch * 8 + db.sequence;
				db.rows = db.rows | BIT(me);
				deadline[me] = sent - 1 + TTL;
				sent = 0
			fi
		}
	:: sent && sent <= now -> sent = now + 1      /* it begins later */
	:: !sent -> break
	od;
	do
	:: d_step {               /* a waiter looks */
			!HAS(granted, me) && HAS(db.rows, me) && IS_FIRST && MAY_HOLD(me) && now < deadline[me] ->
			assert(IS_ALONE);
			assert(db.token[me] > last);
			last = db.token[me];
			granted = granted | BIT(me)
		}
	:: HAS(granted, me) && !sent && now < deadline[me] -> sent = now + 1
	:: sent ->                /* a heartbeat, and its reply */
		d_step {
			see_epoch();
			if
			:: !RENEWS(me) -> deadline[me] = 0
			:: RENEWS(me) && now < deadline[me] ->
				assert(!HAS(granted, me) || IS_ALONE);
				deadline[me] = sent - 1 + TTL
			:: else
			fi;
			sent = 0
		}
	:: now >= deadline[me] -> break
	:: d_step {               /* a release */
			HAS(granted, me) && !HAS(guarded, me) ->
			granted = granted & ~BIT(me);
			remove(me)
		};
		break
	od;
	granted = granted & ~BIT(me);
	d_step { deadline[me] = 0; sent = 0 }
}

#ifdef GUARD
/* A program asks for a guard while it holds the lock; the request may take any time. */
proctype guard(byte me) {
	HAS(granted, me) && now < deadline[me];
	d_step {
		if
		:: HAS(db.rows, me) && MAY_GUARD(me) ->
			assert(IS_ALONE);
			guarded = guarded | BIT(me)
		:: else
		fi
	}
}
#endif

/* Time, the log, failovers, ends of guarded transactions, operators and reapers. */
active proctype world() {
	byte failovers;
	do
	:: now < END -> now++
	:: d_step { !standby.epoch -> copy(standby, db) }       /* the last that it receives */
	:: d_step {
			standby.epoch && failovers < FAILOVERS ->
			failovers++;
			timeline++;
			guarded = 0;
			copy(db, standby);
#ifndef RESTORE
			copy(standby, nothing)
#endif
		}
	:: HAS(guarded, 0) -> guarded = guarded & ~BIT(0)
	:: HAS(guarded, 1) -> guarded = guarded & ~BIT(1)
	:: d_step { MAY_LEAVE(0) && (!HAS(granted, 0) || IS_OVER(0)) -> remove(0) }
	:: d_step { MAY_LEAVE(1) && (!HAS(granted, 1) || IS_OVER(1)) -> remove(1) }
	:: now == END -> break
	od
}

init {
	atomic {
		db.epoch = 1; db.timeline = 1;
		run client(0); run client(1)
#ifdef GUARD
		; run guard(0)
#endif
	}
}
