/** Tries whether an inbox could be kept in a PostgreSQL: with the connections, settings and checks of the store, but nothing changes. */
import { randomBytes, randomUUID } from 'node:crypto'
import { guardWith } from '../../protocol/base/guard.ts'
import { loadPackage, QUERY_MS } from './postgres.ts'
import { Connections, configOf, type PostgresLogin } from './postgres-connections.ts'
import { COUNTS } from './postgres-sql.ts'
import type { Count } from './store.ts'

/** A record in the log of PostgreSQL (WAL), durable like a change, in no table. */
const COMMIT = "SELECT pg_logical_emit_message(true, 'sallyport-check', $1::bytea)"

export class PostgresTrial {
  readonly #login: PostgresLogin
  #connections: Connections | undefined
  #isClosed = false

  constructor(login: PostgresLogin) {
    this.#login = login
  }

  /** Resolves to what an inbox has there. Rejects if the store could not be opened. */
  async open(): Promise<readonly Count[]> {
    const pg = await loadPackage()
    const config = await configOf(pg, this.#login, QUERY_MS)
    if (this.#isClosed) return []
    // A connection that breaks also fails whatever was asked of it.
    const owner = { guard: guardWith(() => {}), broken() {}, heard() {} }
    this.#connections = new Connections(pg, config, QUERY_MS, owner)
    const { rows } = await this.#connections.rehearse(randomUUID(), client => client.query<Count>(COUNTS))
    return rows
  }

  /** Resolves once so many bytes are durable. */
  async commit(bytes: number): Promise<void> {
    await this.#connections!.writer.query(COMMIT, [randomBytes(bytes)])
  }

  close(): void {
    this.#isClosed = true
    this.#connections?.destroy()
  }
}
