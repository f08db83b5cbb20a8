/** A refusal during a dial is about the token that was sent, and only a refusal counts. */
import { once } from 'node:events'
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import type { Duplex } from 'node:stream'
import { afterEach, beforeEach, expect, it } from 'vitest'
import { Dialler, Unreachable } from '../../../client/dial/dialler.ts'
import { checkOptions } from '../../../client/options.ts'
import { TokenKeeper } from '../../../client/token.ts'
import { noLogger } from '../../../protocol/base/log.ts'

let server: Server
let dials: ((answer: string) => void)[]
let dialled: (() => void) | undefined
beforeEach(async () => {
  dials = []
  server = createServer().listen(0, '127.0.0.1')
  server.on('upgrade', (_, socket: Duplex) => {
    dials.push(answer => socket.end(answer))
    dialled?.()
  })
  await once(server, 'listening')
})
afterEach(() => void server.close())

function jwt(id: string): string {
  const iat = Math.floor(Date.now() / 1000)
  const part = (value: object) => Buffer.from(JSON.stringify(value)).toString('base64url')
  return `${part({ alg: 'EdDSA' })}.${part({ sub: 'demo', iat, exp: iat + 300, jti: id })}.c2ln`
}

function make(tokens: string[]) {
  let tokensUsed = 0
  const token = () => tokens[tokensUsed++]!
  const options = {
    url: `ws://127.0.0.1:${(server.address() as AddressInfo).port}`,
    token,
    proxy: '',
    target: () => new Response(),
  }
  const keeper = new TokenKeeper({ source: token, onFresh: () => {}, logger: noLogger })
  return {
    keeper,
    dialler: new Dialler(options, checkOptions(options, { cors: [] }), keeper),
    tokensUsed: () => tokensUsed,
  }
}

async function refused(dialler: Dialler, answer: string, meanwhile?: () => void): Promise<void> {
  const arrived = new Promise<void>(resolve => (dialled = resolve))
  const dial = dialler.dial(0, new AbortController().signal)
  const result = expect(dial).rejects.toBeInstanceOf(Unreachable)
  await arrived
  meanwhile?.()
  dials.pop()!(answer)
  await result
}

const head = (status: string, date = '') =>
  `HTTP/1.1 ${status}\r\n${date}content-length: 0\r\nconnection: close\r\n\r\n`

it('a 401 for an old token leaves one that arrived during the dial in force', async () => {
  const { keeper, dialler, tokensUsed } = make([jwt('1'), jwt('2')])
  const given = jwt('given')
  await refused(dialler, head('401 Unauthorized'), () => keeper.set(given))
  expect(await keeper.get()).toBe(given)
  expect(tokensUsed()).toBe(1)
  keeper.close()
})

it('a 401 for the current token causes another one to be fetched', async () => {
  const { keeper, dialler, tokensUsed } = make([jwt('1'), jwt('2')])
  await refused(dialler, head('401 Unauthorized'))
  await keeper.get()
  expect(tokensUsed()).toBe(2)
  keeper.close()
})

it.each(['401 Unauthorized', '403 Forbidden', '400 Bad Request', '426 Upgrade Required', '503 Service Unavailable'])(
  'the clock of a server that answers %s does not decide when tokens expire',
  async status => {
    const given = jwt('given')
    const { keeper, dialler, tokensUsed } = make([jwt('1'), jwt('2')])
    await refused(dialler, head(status, 'date: Sat, 21 Nov 2099 12:00:00 GMT\r\n'), () => keeper.set(given))
    expect(await keeper.get()).toBe(given)
    expect(tokensUsed()).toBe(1)
    keeper.close()
  },
)
