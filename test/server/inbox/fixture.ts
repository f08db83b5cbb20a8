/** A server with an inbox, a receiver that answers as a test tells it, and a record of what reached it. */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { HttpRequest, ResponseSink } from '../../../protocol/exchange.ts'
import { getHeader } from '../../../protocol/http/headers.ts'
import type { InboxRule } from '../../../protocol/wire/control.ts'
import type { ExchangeHandler } from '../../../protocol/wire/exchange/accept.ts'
import type { ServerOptions } from '../../../server/options.ts'
import type { Server } from '../../../server/server.ts'
import { type Answer, answer, call, DOMAIN, dial, reading, startServer, type TestClient } from '../fixture.ts'

export const RULE: InboxRule = { route: 'hooks', path: '/webhooks/{name}', methods: ['POST'], mode: 'fallback' }

export interface Got {
  readonly request: HttpRequest
  readonly body: Buffer
  readonly id: string | undefined
  readonly attempt: number
  /** Before that, nothing was answered. */
  readonly response: ResponseSink
}

/** Its answer, by the number of the request from 0; undefined: none yet. */
export type Says = (got: Got, index: number) => number | undefined

/** A receiver: everything that reached it whole, in order. */
export class Receiver {
  readonly got: Got[] = []
  says: Says

  constructor(says: Says = () => 200) {
    this.says = says
  }

  get bodies(): string[] {
    return this.got.map(({ body }) => body.toString())
  }

  readonly handler: ExchangeHandler = (_preamble, request, response) =>
    reading(response, body => {
      const id = getHeader(request.headers, 'sallyport-inbox-id')
      const attempt = Number(getHeader(request.headers, 'sallyport-inbox-attempt') ?? 0)
      const got = { request, body, id, attempt, response }
      this.got.push(got)
      const status = this.says(got, this.got.length - 1)
      if (status !== undefined) answer(response, status, `said ${status}`)
    })
}

export interface Ground {
  readonly folder: string
  readonly path: string
  server: Server
  readonly receiver: Receiver
  /** The receiver's client. */
  connect(rules?: InboxRule[]): Promise<TestClient>
  post(body: string | Buffer, options?: { path?: string; headers?: Record<string, string> }): Promise<Answer>
  restart(): Promise<void>
  messages(state?: 'waiting' | 'dead' | 'delivered'): Promise<readonly { id: string; state: string; reason: string }[]>
  close(): Promise<void>
}

export async function makeGround(
  inbox: Partial<NonNullable<ServerOptions['inbox']>> = {},
  overrides: Partial<ServerOptions> = {},
): Promise<Ground> {
  const folder = mkdtempSync(join(tmpdir(), 'sallyport-inbox-'))
  const path = join(folder, 'inbox.db')
  const start = () =>
    startServer({ inbox: { url: `sqlite:${path}`, plaintext: true, diskFreeBytes: 0, ...inbox }, ...overrides })
  const receiver = new Receiver()
  const ground: Ground = {
    folder,
    path,
    server: await start(),
    receiver,
    connect: (rules = [RULE]) => dial(ground.server, { handler: receiver.handler, hello: { inbox: rules } }),
    post: (body, { path: at = '/webhooks/a', headers = {} } = {}) =>
      call(ground.server, `demo.${DOMAIN}`, at, { method: 'POST', body, headers }),
    async restart() {
      await ground.server.close({ graceMs: 0 })
      ground.server = await start()
    },
    messages: state => ground.server.inbox!.list({ ...(state && { state }), limit: 1000 }),
    async close() {
      await ground.server.close({ graceMs: 0 })
      rmSync(folder, { recursive: true, force: true })
    },
  }
  return ground
}
