/* How waiters of one queue in PostgreSQL are woken: does each that may be granted learn of it?
 *
 * Bounds: one queue, CLIENTS sessions with ROUNDS acquires each, readers and writers. Statements
 * are steps; a transaction's writes become visible at its commit. A waiter that nothing can wake
 * is an invalid end state, and a conflicting grant a failed assertion.
 *
 * Faults: with DEATH a session ends at any moment; its row stays until a waiter reaps it. With
 * LOST_NEWS a notification may get lost (a broken connection, a releaser that dies between its two
 * transactions, a crash): then waiters need SAFETY_LOOK. With LOST_REPLIES the reply of an enqueue
 * may get lost, and the client calls again.
 *
 * Each of these takes one rule away, and must fail:
 * NO_QUEUE_LOCK   enqueue does not lock the queue's row: tokens are not in the order of commits
 * OLD_SNAPSHOT    enqueue reads with a snapshot that is older than its lock
 * NO_SECOND_LOOK  a waiter does not look once more after its own commit
 * EARLY_LOOKUP    a release looks up its successors in the transaction that removes it
 * ONE_SUCCESSOR   a release notifies the next contender only, not all that it may admit
 * SILENT_REAPER   who removes a dead session's contender notifies nobody
 * NO_IDEMPOTENCE  an enqueue that is repeated inserts a second contender
 */
#ifndef CLIENTS
#define CLIENTS 3
#endif
#ifndef ROUNDS
#define ROUNDS 1
#endif

#define NOBODY CLIENTS
#define BIT(c) (1 << (c))
#define HAS(set, c) ((set) & BIT(c))

/* What has been committed. Contender c belongs to session c; ORPHAN is one that no client knows. */
#define ORPHAN 4
byte rows;                    /* contenders that are in the queue */
byte token[5];
byte writers;                 /* those of mode write; the others read */
byte sequence;                /* takes no part in transactions */
byte lock = NOBODY;           /* the session that has the queue's row locked */

byte news;                    /* sessions with a notification that they have not read */
byte dead;
byte removing;                /* sessions that have removed a contender, and not notified yet */
byte granted;                 /* those that believe to hold the lock */

#define CONFLICT(a, b) (HAS(writers, a) || HAS(writers, b))

#define AHEAD(i, set, c, mine) \
	(i != c && HAS(set, i) && token[i] < mine && CONFLICT(i, c))
/* What a statement sees whose snapshot is `set`: must c with the token `mine` wait? */
#define BLOCKED(set, c, mine) (AHEAD(0, set, c, mine) || AHEAD(1, set, c, mine) || \
	AHEAD(2, set, c, mine) || AHEAD(3, set, c, mine) || AHEAD(ORPHAN, set, c, mine))

/* Those that the departure of `gone` may admit, out of what is visible now. */
inline look_up(gone, found) {
	d_step {
		found = 0;
		for (i : 0 .. CLIENTS - 1) {
			if
			:: i != gone && HAS(rows, i) && token[i] > token[gone] && CONFLICT(i, gone) &&
					!BLOCKED(rows & ~BIT(gone), i, token[i]) ->
#ifdef ONE_SUCCESSOR
				if
				:: found && token[i] > token[first] -> skip
				:: else -> found = BIT(i); first = i
				fi
#else
				found = found | BIT(i)
#endif
			:: else
			fi
		}
		i = 0
	}
}

inline notify(found) {
	atomic {
		if
		:: news = news | found
#ifdef LOST_NEWS
		:: found -> skip
#endif
		fi;
		found = 0
	}
}

/* A release, a withdrawal and a reaper remove a contender alike. */
inline remove(gone) {
#ifdef EARLY_LOOKUP
	look_up(gone, found);
	d_step { rows = rows & ~BIT(gone); news = news | found; found = 0 };
#else
	d_step { rows = rows & ~BIT(gone); removing = removing | BIT(me) };
	look_up(gone, found);
	notify(found);
#endif
	removing = removing & ~BIT(me)
}

/* One call of the function, which is one transaction. */
inline enqueue() {
#ifdef OLD_SNAPSHOT
	seen = rows;
#endif
#ifndef NO_QUEUE_LOCK
	atomic { lock == NOBODY -> lock = me };
#endif
	if
#ifdef NO_IDEMPOTENCE
	:: false
#else
	:: HAS(rows, me)                /* the earlier call was committed, and only its reply is lost */
#endif
	:: else ->
		atomic {
			if
			:: HAS(rows, me) -> token[ORPHAN] = token[me]; rows = rows | BIT(ORPHAN)
			:: else
			fi;
			sequence++;
			mine = sequence
		}
	fi;
#ifdef OLD_SNAPSHOT
	blocked = BLOCKED(seen, me, mine);
#else
	blocked = BLOCKED(rows, me, mine);
#endif
	atomic { /* the commit */
		token[me] = mine;
		rows = rows | BIT(me);
		if
		:: lock == me -> lock = NOBODY
		:: else
		fi
	}
}

inline wait() {
	atomic {
		if
		:: blocked -> impatient = true  /* a timeout, or the user cancels, at any moment */
		:: true
		fi
	};
	do
	:: !blocked -> break
	:: blocked && HAS(news, me) ->
		news = news & ~BIT(me);
		blocked = BLOCKED(rows, me, mine)
	:: atomic {
			/* It removes the contender of a session that has died. */
			blocked && (rows & dead) ->
			rows = rows & ~dead;
			removing = removing | BIT(me)
		};
#ifndef SILENT_REAPER
		look_up(0, found);
		notify(found);
#endif
		blocked = BLOCKED(rows, me, mine);
		removing = removing & ~BIT(me)
#ifdef SAFETY_LOOK
	:: blocked && !BLOCKED(rows, me, mine) -> blocked = false
#endif
	:: blocked && impatient -> break
	od
}

proctype client(byte me) {
	byte mine, seen, found, i, first, round;
	bool blocked, impatient;
	{
		do
		:: round < ROUNDS ->
			atomic {
				round++;
				if
				:: writers = writers | BIT(me)
				:: writers = writers & ~BIT(me)
				fi
			};
			enqueue();
#ifdef LOST_REPLIES
			if
			:: enqueue()
			:: skip
			fi;
#endif
#ifndef NO_SECOND_LOOK
			if
			:: blocked -> blocked = BLOCKED(rows, me, mine)
			:: else
			fi;
#endif
			wait();
			if
			:: !blocked ->
				d_step {
					for (i : 0 .. CLIENTS - 1) {
						assert(i == me || !HAS(granted, i) || !CONFLICT(i, me))
					}
					i = 0;
					granted = granted | BIT(me)
				};
				granted = granted & ~BIT(me)
			:: else
			fi;
			remove(me);
			d_step { mine = 0; seen = 0; first = 0; blocked = false; impatient = false }
		:: else -> break
		od
	} unless {
		atomic {
			HAS(dead, me);
			if
			:: lock == me -> lock = NOBODY  /* the server ends its transaction */
			:: else
			fi
		}
	}
}

#ifdef DEATH
/* Ends the session 0, or doesn't: clients are alike. */
active proctype killer() {
end:	atomic {
#ifndef LOST_NEWS
		!HAS(removing, 0) &&        /* a session that dies before it has notified loses the news */
#endif
		(HAS(rows, 0) || lock == 0) -> dead = BIT(0); granted = granted & ~BIT(0)
	}
}
#endif

init {
	byte n;
	atomic {
		for (n : 0 .. CLIENTS - 1) { run client(n) }
	}
}
