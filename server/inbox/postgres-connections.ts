/** The connections of a server to PostgreSQL. If the writer or the listener breaks, all are replaced; a reader is replaced alone. */
import type { Client, ClientConfig, Notification, Pool, PoolConfig, QueryConfig, QueryResult, QueryResultRow } from 'pg'
import type { Guard } from '../../protocol/base/guard.ts'
import { readPlain } from '../../protocol/base/plain-file.ts'
import { within } from '../pause.ts'
import { UnusableError } from './grouped-store.ts'
import { examine, prepare, rehearse, sessionOf } from './postgres-schema.ts'
import { CHANNEL, NOTIFY, PROBE } from './postgres-sql.ts'
import type { PostgresLocation } from './postgres-url.ts'

/** Where PostgreSQL is, and how to log in. */
export interface PostgresLogin extends PostgresLocation {
  /** Read at each connection. */
  readonly passwordFile: string | undefined
  /** Authority of its certificate (PEM). Default: the system's authorities. */
  readonly ca: string | Buffer | undefined
}

export type Package = typeof import('pg')['default']

interface ConnectionsOwner {
  readonly guard: Guard
  broken(error: Error): void
  heard(payload: string): void
}

/** A notification takes milliseconds, if it comes at all. Shorter than what `sallyport check` waits for everything. */
const NOTIFY_MS = 3000
const MAX_READERS = 4
/** Type code of int8. We read these as numbers, since none of our times and sizes is too large for one. */
const INT8 = 20

export class Connections {
  /** Commits, each in one round trip. */
  readonly writer: Client
  /** Listens for notifications, and renews the lease. */
  readonly listener: Client
  readonly readers: Pool
  readonly #readers = new Set<Client>()
  readonly #session: string
  readonly #guard: Guard

  /** They are not connected yet. */
  constructor({ Client, Pool }: Package, config: ClientConfig, queryMs: number, owner: ConnectionsOwner) {
    const { guard } = owner
    const session = sessionOf(queryMs)
    const verify: PoolConfig['verify'] = (reader, done) => {
      const ready = guard(() => done())
      reader.query(session).then(ready, guard(done))
    }
    this.#session = session
    this.#guard = guard
    this.writer = new Client({ ...config, pipeline: true } as ClientConfig)
    this.listener = new Client(config)
    this.readers = new Pool({ ...config, max: MAX_READERS, allowExitOnIdle: true, verify })
    const broken = guard((error: Error) => owner.broken(error))
    const heard = guard((news: Notification) => owner.heard(news.payload ?? ''))
    for (const connection of [this.writer, this.listener]) connection.on('error', broken)
    // The pool replaces connections that break while they are idle.
    this.readers.on('error', () => {})
    // It listens to none that breaks while it is verified, although that would end the process. The query fails anyway.
    const connected = guard((reader: Client) => {
      reader.on('error', () => {})
      this.#readers.add(reader)
    })
    this.readers.on('connect', connected)
    const removed = guard((reader: Client) => {
      this.#readers.delete(reader)
    })
    this.readers.on('remove', removed)
    this.listener.on('notification', heard)
  }

  /** Connects. Rejects with an {@link UnusableError} if webhooks cannot be kept there. */
  async open(server: string): Promise<void> {
    await this.#connect(server)
    await prepare(this.listener)
  }

  /** Does the same, and resolves to what `look` finds, but changes nothing. */
  async rehearse<Found>(server: string, look: (client: Client) => Promise<Found>): Promise<Found> {
    await this.#connect(server)
    return await rehearse(this.listener, () => look(this.listener))
  }

  async #connect(server: string): Promise<void> {
    await Promise.all([this.writer.connect(), this.listener.connect()])
    await examine(this.listener)
    await this.#listen(server)
    await Promise.all([this.writer.query(this.#session), this.listener.query(this.#session)])
  }

  /** Checks that notifications arrive. With a pooler that pools by transaction, neither they nor session settings work. */
  async #listen(server: string): Promise<void> {
    const probe = `${server} ${PROBE}`
    const { promise: received, resolve } = Promise.withResolvers<void>()
    let isHeard = false
    const hear = this.#guard(({ payload }: Notification) => {
      if (payload !== probe) return
      isHeard = true
      resolve()
    })
    this.listener.on('notification', hear)
    await this.listener.query(`LISTEN ${CHANNEL}`)
    await this.writer.query(NOTIFY, [CHANNEL, [probe]])
    await within(NOTIFY_MS, received)
    this.listener.off('notification', hear)
    if (isHeard) return
    // Fails if the connection has broken meanwhile.
    await this.listener.query('SELECT')
    throw new UnusableError('notifications do not arrive: a pooler must pool by session (pool_mode = session)')
  }

  /** Destroys them, since the server may not answer any more. */
  destroy(): void {
    for (const client of [this.writer, this.listener, ...this.#readers]) streamOf(client).destroy()
    this.readers.end().catch(() => {})
  }

  /** Asks a reader that may take longer than the others. It is used for nothing else. */
  async askPatiently<Asked>(ms: number, ask: (query: Query) => Promise<Asked>): Promise<Asked> {
    const reader = await this.readers.connect()
    try {
      await reader.query(`SET statement_timeout = ${ms}`)
      return await ask(text => reader.query({ text, query_timeout: ms } as QueryConfig))
    } finally {
      reader.release(true)
    }
  }
}

type Query = <Row extends QueryResultRow>(text: string) => Promise<QueryResult<Row>>

function streamOf(client: Client): { destroy(): void } {
  return (client as unknown as { connection: { stream: { destroy(): void } } }).connection.stream
}

/** Rejects with an {@link UnusableError} if the password cannot be read. */
export async function configOf(pg: Package, login: PostgresLogin, queryMs: number): Promise<ClientConfig> {
  const { host, port, database, user, tls, ca, passwordFile } = login
  const password = passwordFile === undefined ? undefined : () => readPassword(passwordFile)
  await password?.()
  return {
    ...{ host, port, database, user, password, ssl: tls && { ca, rejectUnauthorized: true } },
    ...{ query_timeout: queryMs, connectionTimeoutMillis: queryMs },
    ...{ keepAlive: true, application_name: 'sallyport' },
    types: { getTypeParser: (type: number) => (type === INT8 ? Number : pg.types.getTypeParser(type)) },
  } as ClientConfig
}

async function readPassword(path: string): Promise<string> {
  const bytes = await readPlain(path).catch((error: Error) => Promise.reject(new UnusableError(error.message)))
  const password = String(bytes).trim()
  if (password === '') throw new UnusableError(`${path} is empty`)
  return password
}
