/* Failovers of PostgreSQL to a standby that lags: is each lock still granted to one client only?
 *
 * The standby has a prefix of the log: an earlier state of the primary, at a moment of its choice.
 * The old primary answers nobody once another one is promoted. With RESTORE the second failover is
 * to an older copy (a backup, or a standby that never followed the first one).
 *
 * Bounds: one exclusive lock, CLIENTS sessions that try once, FAILOVERS,
 * and END ticks of time; the ttl of all is TTL ticks. Clients and replies may take any time. An
 * operator may evict a waiter. Asserted at each grant and each renewal: nobody else believes to
 * hold the lock, and no guarded transaction of another is open; tokens grow from grant to grant.
 *
 * Each of these takes one rule away, and must fail:
 * NO_EPOCH        tokens are the sequence's alone
 * COUNTED_EPOCH   the number of an epoch is not dated (with RESTORE)
 * NO_PAUSE        a new epoch grants at once
 * OLD_GRANTS      a heartbeat renews what an earlier epoch has granted
 * OLD_WAITERS     a waiter of an earlier epoch may still be granted
 * REPLY_DEADLINE  the deadline counts from the reply of a heartbeat, and not from its sending
 * FREE_GUARD      a guard does not keep its contender in the queue
 * BLIND_GUARD     a guard does not compare the timeline with the epoch's
 */
#ifndef CLIENTS
#define CLIENTS 2
#endif
#ifndef FAILOVERS
#define FAILOVERS 1
#endif
#ifndef END
#define END 5
#endif
#define TTL 2
#define PAUSE TTL             /* the longest ttl that the schema allows */
#define BIT(c) (1 << (c))
#define HAS(set, c) ((set) & BIT(c))

/* What is in the database, and what the log carries to the standby. */
typedef Database {
	byte epoch, timeline, since, sequence;
	byte rows;                /* contenders that are in the queue, one for each client */
	byte token[CLIENTS]       /* of a contender: its epoch, times 8, and the sequence's number */
}
Database db, standby, backup;
byte timeline = 1;            /* of the server that answers */

byte now;
byte granted;                 /* clients that were granted the lock, and do not know of a loss */
byte deadline[CLIENTS];
byte guarded;                 /* clients whose guarded transaction is open on this server */
byte last;                    /* the highest token that was granted */

#define BELIEVES(c) (HAS(granted, c) && now < deadline[c])
#define IS_OLD(c) (db.token[c] / 8 < db.epoch)
#ifdef OLD_WAITERS
#define OLD_COUNTS true
#else
#define OLD_COUNTS false
#endif
#ifdef BLIND_GUARD
#define BLIND true
#else
#define BLIND false
#endif
#ifdef FREE_GUARD
#define CAN_LEAVE(c) true
#else
#define CAN_LEAVE(c) (!HAS(guarded, c))
#endif
#ifdef NO_PAUSE
#define QUIET false
#else
#define QUIET (db.epoch > 1 && now < db.since + PAUSE)
#endif

inline copy(to, from) {
	d_step {
		to.epoch = from.epoch; to.timeline = from.timeline; to.since = from.since;
		to.sequence = from.sequence; to.rows = from.rows;
		for (n : 0 .. CLIENTS - 1) { to.token[n] = from.token[n] }
		n = 0
	}
}

/* Each statement begins with it: a new epoch, if another timeline answers. */
inline see_epoch() {
	if
	:: db.timeline != timeline ->
		db.timeline = timeline;
		db.since = now;
#ifndef NO_EPOCH
		db.epoch = db.epoch + 1;
#ifndef COUNTED_EPOCH
		db.epoch = (db.epoch < 2 + now / PAUSE -> 2 + now / PAUSE : db.epoch)
#endif
#endif
	:: else
	fi
}

inline check_alone() {
	for (n : 0 .. CLIENTS - 1) {
		assert(n == me || (!BELIEVES(n) && !HAS(guarded, n)))
	}
	n = 0
}

#define FIRST(n) (n == me || n >= CLIENTS || !HAS(db.rows, n) || db.token[n] > db.token[me])

proctype client(byte me) {
	byte sent, n;
	bool beats, tried;
	do
	:: !tried ->
		/* Opens a session, and enqueues. */
		sent = now;
		atomic {
			see_epoch();
			if
			:: QUIET -> skip
			:: else ->
				tried = true;
				db.sequence++;
				db.token[me] = db.epoch * 8 + db.sequence;
				db.rows = db.rows | BIT(me);
				deadline[me] = sent + TTL;
				sent = 0
			fi
		};
		do
		:: !HAS(db.rows, me) && !HAS(granted, me) && !beats -> break    /* evicted, or lost */
		:: atomic {
				/* A waiter looks, by news or by itself. */
				!HAS(granted, me) && HAS(db.rows, me) && FIRST(0) && FIRST(1) && FIRST(2) &&
				now < deadline[me] && (OLD_COUNTS || (db.timeline == timeline && !IS_OLD(me))) ->
				granted = granted | BIT(me);
				check_alone();
				assert(db.token[me] > last);
				last = db.token[me]
			}
		:: !beats -> sent = now; beats = true
		:: beats ->
			atomic {
				see_epoch();
				if
#ifdef OLD_GRANTS
				:: HAS(db.rows, me)
#else
				:: HAS(db.rows, me) && !IS_OLD(me)
#endif
				:: else ->          /* lost */
					granted = granted & ~BIT(me);
					beats = false;
					sent = 0;
					break
				fi
			};
			/* The reply, if it comes before the deadline. */
			atomic {
				if
				:: now < deadline[me] ->
#ifdef REPLY_DEADLINE
					deadline[me] = now + TTL;
#else
					deadline[me] = sent + TTL;
#endif
					if
					:: HAS(granted, me) -> check_alone()
					:: else
					fi
				:: else
				fi;
				beats = false;
				sent = 0
			}
		:: atomic {
				/* The guard: then a transaction that ends when it likes, or with its server. */
				HAS(granted, me) && !HAS(guarded, me) && HAS(db.rows, me) &&
				(BLIND || (db.timeline == timeline && !IS_OLD(me))) ->
				guarded = guarded | BIT(me);
				check_alone()
			}
		:: atomic { HAS(granted, me) && !HAS(guarded, me) ->    /* a release */
				granted = granted & ~BIT(me);
				db.rows = db.rows & ~BIT(me);
				beats = false;
				sent = 0;
				break
			}
		:: atomic { now >= deadline[me] ->                      /* the deadline */
				granted = granted & ~BIT(me);
				beats = false;
				sent = 0;
				break
			}
		od
	:: else -> break
	od
}

/* Time, the log, operators, and reapers, which have seen no heartbeat for a ttl. */
active proctype world() {
	byte n, failovers;
again:	n = 0;
	do
	:: now < END -> now++
	:: copy(standby, db)
#ifdef RESTORE
	:: failovers == 0 && !backup.epoch -> copy(backup, db)
#endif
	:: failovers < FAILOVERS ->
		atomic {
			failovers++;
			timeline++;
			guarded = 0;
#ifdef RESTORE
			if
			:: failovers == 2 && backup.epoch -> copy(db, backup)
			:: else -> copy(db, standby)
			fi
#else
			copy(db, standby)
#endif
		}
	:: guarded ->
		atomic {
			for (n : 0 .. CLIENTS - 1) {
				if
				:: guarded = guarded & ~BIT(n)
				:: true
				fi
			}
			n = 0
		}
	:: atomic {
			db.rows -> select(n : 0 .. CLIENTS - 1);
			if
			:: HAS(db.rows, n) && CAN_LEAVE(n) && !HAS(granted, n)      /* a waiter is evicted */
			:: HAS(db.rows, n) && CAN_LEAVE(n) && !QUIET && (now >= deadline[n] || IS_OLD(n))
			:: else -> goto again
			fi;
			db.rows = db.rows & ~BIT(n);
			n = 0
		}
	:: now == END -> break
	od
}

init {
	byte n;
	atomic {
		db.epoch = 1; db.timeline = 1;
		copy(standby, db);
		for (n : 0 .. CLIENTS - 1) { run client(n) }
	}
}
