/**
 * A server's inbox in a separate process, to be killed: `replica.ts POSTGRES-URL RECEIVER-URL`. It prints the port at
 * which it accepts webhooks, unencrypted and without an edge in front.
 */
import { createServer, request as httpRequest, type ServerResponse } from 'node:http'
import { SallyportError } from '../../../protocol/base/errors.ts'
import { defaultsOf } from '../../../protocol/base/limit.ts'
import { noLogger } from '../../../protocol/base/log.ts'
import type { Handler, ResponseSink } from '../../../protocol/exchange.ts'
import { refusing } from '../../../protocol/http/problem.ts'
import { Inbox } from '../../../server/inbox/inbox.ts'
import { openPostgres } from '../../../server/inbox/postgres.ts'
import { readPostgresUrl } from '../../../server/inbox/postgres-url.ts'
import { INBOX } from '../../../server/limits.ts'
import { unhurried } from '../../support/busy.ts'
import { EXCHANGE } from '../../support/ends.ts'

const [url = '', receiver = ''] = process.argv.slice(2)
const times = { leaseMs: unhurried(3000), queryMs: unhurried(900) }
const place = { ...readPostgresUrl(url), passwordFile: undefined, ca: undefined, logger: noLogger }
const store = await openPostgres({ ...place, ...times })
const inbox = new Inbox({
  ...{
    store,
    limits: { ...defaultsOf(INBOX), attemptMs: unhurried(5000) },
    plaintext: true,
    logger: noLogger,
    now: Date.now,
  },
  ...{ isLive: () => true, isHere: () => true, isOvertaken: () => false, look: () => {} },
})

/** To the receiver, as one HTTP exchange. */
const deliver: Handler = (asked, response) => {
  const fields: string[][] = []
  for (let i = 0; i < asked.headers.length; i += 2) fields.push([asked.headers[i]!, asked.headers[i + 1]!])
  const headers = Object.fromEntries(fields)
  const call = httpRequest(receiver + asked.path, { method: asked.method, headers, agent: false }, answer => {
    response.responseHead({ status: answer.statusCode!, headers: [], bodyBytes: 0 })
    answer.resume().on('end', () => response.responseEnd([]))
  })
  call.on('error', () => response.responseAbort(new SallyportError('upstream-refused')))
  return {
    requestData: chunk => {
      call.write(chunk)
      response.requestConsumed(chunk.length)
    },
    requestEnd: () => call.end(),
    requestAbort: () => call.destroy(),
    responseConsumed() {},
  }
}
const refuse = refusing(() => undefined)
inbox.start(deliver, refuse)
inbox.rules.publish(
  'demo',
  [{ route: 'r', path: '/', mode: process.argv[4] === 'always' ? 'always' : 'fallback' }],
  undefined,
)
const front = inbox.layer(deliver)

const sinkOf = (answer: ServerResponse): ResponseSink => ({
  responseInformational() {},
  responseHead: ({ status }) => answer.writeHead(status),
  responseData: chunk => answer.write(chunk),
  responseEnd: () => answer.end(),
  responseAbort: error => answer.writeHead(error.status).end(),
  requestConsumed() {},
})

const server = createServer((asked, answer) => {
  const id = String(asked.headers['idempotency-key'])
  const request = {
    ...EXCHANGE,
    method: 'POST',
    path: asked.url!,
    headers: ['idempotency-key', id],
    runtime: 'demo',
    requestId: id,
  }
  const sink = front(request, sinkOf(answer))
  asked.on('data', chunk => sink.requestData(chunk)).on('end', () => sink.requestEnd([]))
})
server.listen(0, '127.0.0.1', () => process.stdout.write(`${(server.address() as { port: number }).port}\n`))
process.on('SIGTERM', () => {
  server.close()
  server.closeAllConnections()
  void inbox.close().then(() => process.exit(0))
})
