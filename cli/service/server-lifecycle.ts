/** Operations on a running server by hand: sessions, runtimes, revocations, inbox, drain. */
import type { Body } from '../../admin/actions.ts'
import type { AdminSource } from '../../admin/page.ts'
import { detached } from '../../protocol/base/guard.ts'
import type { Logger } from '../../protocol/base/log.ts'
import type { DrainOptions, ListedRevocation, Revocation, Server, SessionInfo } from '../../server/index.ts'
import { givenOf, numberOf, textOf } from './body-fields.ts'
import { dropMessages, listMessages, pauseRuntime, readMessage, readPart, replayMessages } from './inbox-operations.ts'

/** A session as operators see it, with times in ISO 8601. */
export function sessionStatus({ connectedAt, tokenEndsAt, ...session }: SessionInfo) {
  return {
    ...session,
    connectedSince: new Date(connectedAt).toISOString(),
    tokenEnds: new Date(tokenEndsAt).toISOString(),
  }
}

/** Operations of one replica, by path. The operator gets one row per replica. */
type Operations = Readonly<Record<string, (body: Body) => Row | Promise<Row>>>
type Row = Readonly<Record<string, unknown>>

/** What operators may read of it. */
function viewsOf(server: Server): Operations {
  return {
    '/sessions': () => ({ sessions: server.sessions().map(sessionStatus) }),
    '/runtimes': () => ({ runtimes: describeRuntimes(server.sessions()) }),
    '/revocations': () => ({ revocations: server.revocations() }),
    '/inbox': async body => ({ messages: await listMessages(server, body) }),
    '/inbox/message': async body => ({ messages: await readMessage(server, body) }),
    '/inbox/part': async body => ({ messages: await readPart(server, body) }),
  }
}

/** What they may do with it. Each replica where an action did something writes that to its audit log. */
function actionsOf(server: Server, logger: Logger): Operations {
  return {
    '/revocations/remove': async body => ({ removed: await removeRevocation(server, body) }),
    '/inbox/replay': async body => ({ messages: await replayMessages(server, body) }),
    '/inbox/drop': async body => ({ messages: await dropMessages(server, body) }),
    '/inbox/pause': body => pauseRuntime(server, body, true),
    '/inbox/resume': body => pauseRuntime(server, body, false),
    '/sessions/drain': body => ({ sessions: drainSessions(server, body) }),
    '/sessions/close': body => ({ sessions: closeSessions(server, body) }),
    '/runtimes/check': async body => ({ instances: await server.checkTargets(runtimeOf(body)) }),
    '/drain': body =>
      textOf(body, 'replica') === server.stats().replica ? { sessions: drainAll(server, body, logger) } : {},
  }
}

/** The body of a removal that removes nothing. A replica that does not answer it does not learn of a new rule either. */
const NOTHING = { id: '-' }

/** Members of an answer that show that an action did something. */
const DONE = ['sessions', 'messages', 'instances']

/** Runs an operation on all replicas that share the directory, this one first. */
class Everywhere {
  readonly #server: Server
  readonly actions: Operations
  readonly #operations: Operations

  constructor(server: Server, logger: Logger) {
    this.#server = server
    this.actions = actionsOf(server, logger)
    this.#operations = { ...viewsOf(server), ...this.actions }
    server.answerOthers(async (what, body, by) => {
      if (!Object.hasOwn(this.#operations, what)) return undefined
      const done = await this.here(what, body as Body)
      if (Object.hasOwn(this.actions, what) && (DONE.some(name => name in done) || done.removed === true))
        logger.warn({ audit: true, action: what, who: 'an operator', from: by, body, done }, `audit: ${what}`)
      return done
    })
  }

  async ask(what: string, body: Body = {}): Promise<Row[]> {
    const here = await this.here(what, body)
    // Servers that share an inbox would all do the same.
    if (what.startsWith('/inbox') && this.#server.inbox?.shared === true) return [here]
    return [here, ...(await this.others(what, body))]
  }

  /** The rows of the other replicas, or what prevented them from answering. */
  async others(what: string, body: Body): Promise<Row[]> {
    const rows = await this.#server.askOthers(what, body).catch(error => [{ problem: (error as Error).message }])
    return rows as Row[]
  }

  async here(what: string, body: Body): Promise<Row> {
    return { replica: this.#server.stats().replica, ...(await this.#operations[what]!(body)) }
  }
}

/** Views and actions for the admin listener of a server. */
export function serverLifecycle(server: Server, logger: Logger): Required<Pick<AdminSource, 'views' | 'actions'>> {
  const everywhere = new Everywhere(server, logger)
  const gathered = (path: string, name: string) => async (query: URLSearchParams) => {
    const rows = await everywhere.ask(path, Object.fromEntries(query))
    return { [name]: rows.flatMap(row => row[name] ?? []), ...problemsOf(rows) }
  }
  const acted = (what: string) => async (body: Body) => ({ replicas: await everywhere.ask(what, body) })
  return {
    views: {
      '/sessions': gathered('/sessions', 'sessions'),
      '/runtimes': gathered('/runtimes', 'runtimes'),
      '/inbox': gathered('/inbox', 'messages'),
      '/inbox/message': gathered('/inbox/message', 'messages'),
      '/inbox/part': gathered('/inbox/part', 'messages'),
      '/revocations': async () => mergeRevocations(await everywhere.ask('/revocations')),
    },
    actions: {
      ...Object.fromEntries(Object.keys(everywhere.actions).map(what => [what, acted(what)])),
      // The directory tells the other replicas.
      '/revoke': async body => {
        const rule = readRevocation(body)
        const done = { replica: server.stats().replica, ...(await server.revoke(rule)) }
        const revocation = server.revocations().find(one => isSameRule(one, rule)) ?? rule
        return { replicas: [done], revocation, ...problemsOf(await everywhere.others('/revocations/remove', NOTHING)) }
      },
      '/revocations/remove': async body => {
        const done = await acted('/revocations/remove')(body)
        if (!done.replicas.some(({ removed }) => removed === true)) throw new TypeError('there is no such revocation')
        return done
      },
      '/drain': async body => ({ replicas: await drainOne(server, everywhere, body) }),
    },
  }
}

/** Drains one replica: this one, even if others have its name, or another that is named. If all drained at once, nobody would serve. */
async function drainOne(server: Server, everywhere: Everywhere, body: Body): Promise<Row[]> {
  const own = server.stats().replica
  const replica = textOf(body, 'replica') ?? own
  const named = { ...body, replica }
  const rows = replica === own ? [await everywhere.here('/drain', named)] : await everywhere.ask('/drain', named)
  const done = rows.filter(row => 'sessions' in row)
  if (done.length === 0) throw new TypeError(`no replica ${replica} answered`)
  return done
}

function drainAll(server: Server, body: Body, logger: Logger): string[] {
  const sessions = server.sessions().map(({ id }) => id)
  detached(logger, 'the drain failed', server.drain({ graceMs: numberOf(body, 'graceMs') }))
  return sessions
}

/** One row for each runtime that has a session here. */
function describeRuntimes(sessions: readonly SessionInfo[]) {
  const rows = new Map<string, ReturnType<typeof emptyRow>>()
  for (const session of sessions) {
    const row = rows.get(session.runtime) ?? emptyRow(session)
    rows.set(session.runtime, row)
    row.sessions++
    row.streams += session.streams
    row.bufferedBytes += session.bufferedBytes
    row.instances.add(session.instance)
    if (session.active) row.active = session.instance
    row.epoch = Math.max(row.epoch, session.epoch)
  }
  return [...rows.values()].map(({ instances, ...row }) => ({ ...row, instances: instances.size }))
}

function emptyRow({ runtime, replica }: SessionInfo) {
  const active: string | undefined = undefined
  return {
    runtime,
    replica,
    sessions: 0,
    instances: new Set<string>(),
    active: active as string | undefined,
    epoch: 0,
    streams: 0,
    bufferedBytes: 0,
  }
}

function drainSessions(server: Server, body: Body): string[] {
  const options: DrainOptions = {
    reason: textOf(body, 'reason'),
    afterMs: numberOf(body, 'afterMs'),
    graceMs: numberOf(body, 'graceMs'),
  }
  return chosen(server, body).filter(id => server.drainSession(id, options))
}

function closeSessions(server: Server, body: Body): string[] {
  return chosen(server, body).filter(id => server.closeSession(id, textOf(body, 'reason')))
}

function chosen(server: Server, body: Body): string[] {
  const [session, runtime] = [textOf(body, 'session'), textOf(body, 'runtime')]
  if ((session === undefined) === (runtime === undefined)) throw new TypeError('give a session or a runtime')
  const fits = (info: SessionInfo) => (session === undefined ? info.runtime === runtime : info.id === session)
  return server
    .sessions()
    .filter(fits)
    .map(({ id }) => id)
}

/** Only a runtime means tokens issued up to now, since `revoke` is mostly for runtimes that may come back. */
function readRevocation(body: Body): Revocation {
  const tokenId = textOf(body, 'tokenId')
  const runtime = textOf(body, 'runtime')
  const isAlone = tokenId === undefined && runtime !== undefined && body.future !== true
  const issuedBefore = numberOf(body, 'issuedBefore') ?? (isAlone ? Date.now() / 1000 : undefined)
  return givenOf({ tokenId, runtime, issuedBefore, until: numberOf(body, 'until') })
}

function isSameRule(a: Revocation, b: Revocation): boolean {
  const { tokenId, runtime, issuedBefore, until } = b
  return a.tokenId === tokenId && a.runtime === runtime && a.issuedBefore === issuedBefore && a.until === until
}

async function removeRevocation(server: Server, body: Body): Promise<boolean> {
  const id = textOf(body, 'id')
  if (id === undefined) throw new TypeError('give the id of a revocation')
  return server.removeRevocation(id)
}

/** Each rule once, with the replicas that know it. */
function mergeRevocations(rows: readonly Row[]) {
  const found = new Map<string, ListedRevocation & { replicas: unknown[] }>()
  for (const { replica, revocations } of rows) {
    for (const rule of (revocations ?? []) as ListedRevocation[]) {
      const { replicas = [], from = [] } = found.get(rule.id) ?? {}
      found.set(rule.id, { ...rule, from: [...new Set([...from, ...rule.from])], replicas: [...replicas, replica] })
    }
  }
  return { revocations: [...found.values()], ...problemsOf(rows) }
}

/** What prevented replicas from answering. Absent if all have. */
function problemsOf(rows: readonly Row[]) {
  const problems = rows.flatMap(({ problem }) => problem ?? [])
  return problems.length > 0 ? { problems } : {}
}

function runtimeOf(body: Body): string {
  const runtime = textOf(body, 'runtime')
  if (runtime === undefined) throw new TypeError('give a runtime')
  return runtime
}
