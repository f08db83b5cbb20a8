/** What is mounted on an embedder's server, in every order, and what the embedder's listeners still receive. */
import { EventEmitter, once } from 'node:events'
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import { createServer as createHttpsServer } from 'node:https'
import { type AddressInfo, connect } from 'node:net'
import { type Duplex, duplexPair } from 'node:stream'
import { afterEach, beforeEach, describe, expect, type MockInstance, test, vi } from 'vitest'
import { ignore } from '../../../../protocol/base/guard.ts'
import { addMount, type Mounted } from '../../../../protocol/http/http1/mounts.ts'
import { rawCall } from '../../../router/support.ts'
import { makeSecrets } from '../../../support/secrets.ts'
import { callBadly, withoutNodesListener } from '../../../support/tls-faults.ts'
import { eventually } from '../../../support/until.ts'

const EVENTS = ['request', 'checkContinue', 'checkExpectation', 'upgrade'] as const

let host: Server
let port: number
/** Who received what, in order. */
let seen: string[]

beforeEach(async () => {
  seen = []
  host = createServer()
  host.listen(0, '127.0.0.1')
  await once(host, 'listening')
  port = (host.address() as AddressInfo).port
})
afterEach(() => {
  host.closeAllConnections()
  host.close()
  vi.restoreAllMocks()
})

const answering = (name: string) => (_: IncomingMessage, response: ServerResponse) => {
  seen.push(name)
  // A second answer to one request throws.
  response.setHeader('x-by', name)
  response.end(name)
}

const upgraded = (name: string) => (_: IncomingMessage, socket: Duplex) => {
  seen.push(name)
  socket.end('HTTP/1.1 426 x\r\ncontent-length: 0\r\nconnection: close\r\n\r\n')
}

/** Handles requests for the host of its name. */
function mounted(name: string): Mounted {
  const isOurs = ({ headers }: IncomingMessage) => headers.host === name
  return {
    serves: isOurs,
    request: answering(name),
    upgrades: isOurs,
    upgrade: upgraded(`${name} upgrade`),
    failed: () => seen.push(`${name} failed`),
  }
}

const ask = (to: string, ...fields: string[]) =>
  rawCall(port, [`GET / HTTP/1.1`, `host: ${to}`, 'connection: close', ...fields].join('\r\n').concat('\r\n\r\n'))

async function ledger(...hosts: string[]): Promise<string[]> {
  seen = []
  for (const to of hosts) await ask(to)
  return seen
}

describe('mounts on one server', () => {
  const names = ['a', 'b', 'c']
  const orders = [
    ['a', 'b', 'c'],
    ['a', 'c', 'b'],
    ['b', 'a', 'c'],
    ['b', 'c', 'a'],
    ['c', 'a', 'b'],
    ['c', 'b', 'a'],
  ]
  test.each(orders)('taken back in the order %s %s %s, each twice', async (...order) => {
    for (const event of EVENTS) {
      host.on(event, event === 'upgrade' ? upgraded('app upgrade') : answering('app'))
    }
    const before = EVENTS.map(event => host.listeners(event))
    const backs = new Map(names.map(name => [name, addMount(host, mounted(name))]))
    const left = new Set(names)
    const expected = () => [...names, 'x'].map(name => (left.has(name) ? name : 'app'))
    expect(await ledger(...names, 'x')).toEqual(expected())
    for (const name of order) {
      left.delete(name)
      for (let i = 0; i < 2; i++) backs.get(name)!()
      expect(await ledger(...names, 'x')).toEqual(expected())
    }
    expect(EVENTS.map(event => host.listeners(event))).toEqual(before)
    // Taken back once more, long after, it leaves alone what came later.
    const again = addMount(host, mounted('a'))
    for (const back of backs.values()) back()
    expect(await ledger('a', 'x')).toEqual(['a', 'app'])
    again()
    expect(EVENTS.map(event => host.listeners(event))).toEqual(before)
  })

  test('a listener added between two mounts comes after both, and stays', async () => {
    const first = addMount(host, mounted('a'))
    host.on('request', answering('app'))
    const second = addMount(host, mounted('b'))
    expect(await ledger('a', 'b', 'x')).toEqual(['a', 'b', 'app'])
    first()
    second()
    expect(await ledger('a', 'b', 'x')).toEqual(['app', 'app', 'app'])
  })

  /** Puts itself in front of the listeners, and calls them for what it does not serve itself. */
  function wrap(event: string, serve: (request: IncomingMessage, by: ServerResponse & Duplex) => void): void {
    const server: EventEmitter = host
    const before = server.listeners(event)
    server.removeAllListeners(event)
    server.on(event, (request: IncomingMessage, by: ServerResponse & Duplex) => {
      if (request.headers.host === 'wrapper') serve(request, by)
      else for (const listener of before) listener.call(host, request, by)
    })
  }

  test.each(['request', 'upgrade'])(
    'each %s is handled once, although something has wrapped the listeners since',
    async event => {
      const ledger = async (...hosts: string[]): Promise<string[]> => {
        seen = []
        for (const to of hosts)
          await ask(to, ...(event === 'upgrade' ? ['connection: upgrade', 'upgrade: websocket'] : []))
        return seen.map(name => name.replace(' upgrade', ''))
      }
      host.on('request', answering('app'))
      host.on('upgrade', upgraded('app'))
      const first = addMount(host, mounted('a'))
      wrap(event, event === 'request' ? answering('wrapper') : upgraded('wrapper'))
      expect(await ledger('a', 'wrapper', 'x')).toEqual(['a', 'wrapper', 'app'])
      const second = addMount(host, mounted('b'))
      expect(await ledger('a', 'b', 'wrapper', 'x')).toEqual(['a', 'b', 'wrapper', 'app'])
      first()
      expect(await ledger('a', 'b', 'wrapper', 'x')).toEqual(['app', 'b', 'wrapper', 'app'])
      second()
      expect(await ledger('a', 'b', 'wrapper', 'x')).toEqual(['app', 'app', 'wrapper', 'app'])
    },
  )

  test('upgrades go to a listener that is added later, as Socket.IO adds its own', async () => {
    host.on('request', answering('app'))
    addMount(host, mounted('a'))
    host.on('upgrade', (request, socket) => setTimeout(upgraded('later'), 10, request, socket))
    expect(await ask('x', 'connection: upgrade', 'upgrade: websocket')).toMatch(/^HTTP\/1.1 426 /)
    expect(seen).toEqual(['later'])
  })

  test('a listener for one event hears one', async () => {
    host.once('upgrade', upgraded('app upgrade'))
    const back = addMount(host, mounted('a'))
    back()
    host.emit('upgrade', {}, { end() {} }, undefined)
    expect(host.listenerCount('upgrade')).toBe(0)
  })
})

test('an exception in a mount ends only its connection', async () => {
  const throwing = () => {
    throw new Error('a defect')
  }
  host.on('request', answering('app'))
  addMount(host, { ...mounted('a'), request: throwing, upgrade: throwing })
  expect(await ask('a')).toBe('')
  expect(await ask('a', 'connection: upgrade', 'upgrade: websocket')).toBe('')
  await ask('x')
  expect(seen).toEqual(['a failed', 'a failed', 'app'])
})

test.each([
  ['an upgrade that is refused', 'GET / HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n'],
  ['a CONNECT', 'CONNECT a:1 HTTP/1.1\r\nhost: a\r\n\r\n'],
])('C6: garbage behind %s affects nobody', async (_, text) => {
  const listeners = withoutNodesListener()
  const secure = createHttpsServer((await makeSecrets()).server)
  addMount(secure, mounted('a'))
  // Before Node 24.9, every offer is emitted.
  Object.assign(secure, { shouldUpgradeCallback: () => true })
  secure.listen(0, '127.0.0.1')
  await once(secure, 'listening')
  const { port } = secure.address() as AddressInfo
  await callBadly(port, text)
  secure.close()
  expect(listeners).not.toContain(0)
  expect(listeners).toHaveLength(1)
})

test('P1: a listener that rejects fails as without a mount', async () => {
  const rejections: unknown[] = []
  const error = new Error('a defect')
  const rejecting = async () => {
    throw error
  }
  EventEmitter.captureRejections = true
  const capturing = createServer().on('request', ignore).on('request', rejecting)
  EventEmitter.captureRejections = false
  addMount(capturing, mounted('a'))
  capturing.listen(0, '127.0.0.1')
  await once(capturing, 'listening')
  const place = capturing.address() as AddressInfo
  const bytes = 'GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n'
  expect(await rawCall(place.port, bytes)).toMatch(/^HTTP\/1\.1 500 /)
  capturing.close()
  // By default, it is for the process to handle.
  const listeners = process.listeners('unhandledRejection')
  process.removeAllListeners('unhandledRejection').on('unhandledRejection', reason => rejections.push(reason))
  host.on('request', answering('app')).on('request', rejecting)
  addMount(host, mounted('a'))
  await ask('x')
  await eventually(() => expect(rejections).toEqual([error]))
  process.removeAllListeners('unhandledRejection')
  for (const listener of listeners) process.on('unhandledRejection', listener)
})

test.each([
  [
    'callers of a mount are probed, so that one that vanished is noticed',
    false,
    [[[true, 30_000]], [], [[true, 30_000]]],
  ],
  ['the probes that the embedder has chosen stay as they are', true, [[], [], []]],
])('E16: %s', async (_, keepAlive, probes) => {
  const spies: MockInstance[] = []
  Object.assign(host, { keepAlive })
  host.on('connection', socket => spies.push(vi.spyOn(socket, 'setKeepAlive')))
  host.on('request', answering('app'))
  addMount(host, mounted('a'))
  await ledger('a', 'x')
  await ask('a', 'connection: upgrade', 'upgrade: websocket')
  expect(spies.map(({ mock }) => mock.calls)).toEqual(probes)
})

test('P1: a pipeline on a stream that the embedder has injected ends it', async () => {
  const request = (_: IncomingMessage, response: ServerResponse) => void setImmediate(() => response.end())
  addMount(host, { ...mounted('ours'), request })
  const [caller, accepted] = duplexPair()
  host.emit('connection', accepted)
  let answers = ''
  caller.on('data', chunk => (answers += chunk))
  caller.write('GET / HTTP/1.1\r\nhost: ours\r\n\r\n'.repeat(3))
  await once(caller, 'end')
  expect(answers.match(/HTTP/g)).toHaveLength(2)
})

describe('expectations and offers', () => {
  /** Since Node 24.9. */
  const canDecline = 'shouldUpgradeCallback' in createServer()
  const offer = ['connection: upgrade, close', 'upgrade: h2c']

  test.each([
    ['nothing', [], 'ours'],
    ['100-continue', ['expect: 100-continue'], 'ours'],
    ['something else', ['expect: 200-ok'], 'ours'],
    ['an upgrade', ['connection: upgrade', 'upgrade: websocket'], 'ours upgrade'],
  ])('%s: our requests reach only us, whatever the embedder listens for', async (_name, fields, by) => {
    for (const event of EVENTS) host.on(event, event === 'upgrade' ? upgraded('app') : answering('app'))
    addMount(host, mounted('ours'))
    await ask('ours', ...fields)
    expect(seen).toEqual([by])
    await ask('theirs', ...fields)
    expect(seen).toEqual([by, 'app'])
  })

  test('an expectation that the embedder does not listen for leaves its request as it is', async () => {
    const expects = 'expect: 200-ok'
    host.on('request', answering('app'))
    const back = addMount(host, mounted('ours'))
    expect(await ask('ours', expects)).toMatch(/ours$/)
    expect(await ask('theirs', expects)).toMatch(/^HTTP\/1\.1 417 /)
    host.on('checkExpectation', (asked, response) => setTimeout(answering('later'), 10, asked, response))
    expect(await ask('theirs', expects)).toMatch(/later$/)
    back()
    expect(await ask('theirs', expects)).toMatch(/later$/)
    host.removeAllListeners('checkExpectation')
    expect(await ask('ours', expects)).toMatch(/^HTTP\/1\.1 417 /)
    expect(seen).toEqual(['ours', 'later', 'later'])
  })

  test('100-continue is sent before our answer', async () => {
    host.on('checkContinue', answering('app'))
    addMount(host, mounted('ours'))
    expect(await ask('ours', 'expect: 100-continue')).toMatch(/^HTTP\/1\.1 100 Continue\r\n\r\nHTTP\/1\.1 200 OK/)
  })

  test.runIf(canDecline)('an offer that the embedder does not listen for leaves its request as it is', async () => {
    host.on('request', answering('app'))
    addMount(host, mounted('ours'))
    expect(await ask('theirs', ...offer)).toMatch(/app$/)
    const body = ['content-length: 5', ...offer]
    const post = (to: string) =>
      rawCall(port, ['POST / HTTP/1.1', `host: ${to}`, ...body].join('\r\n').concat('\r\n\r\nhello'))
    expect(await post('theirs')).toMatch(/app$/)
    // Ours, too, since Node reads the body, or since we accept only WebSockets.
    expect(await post('ours')).toMatch(/ours$/)
    expect(await ask('ours', ...offer)).toMatch(/ours$/)
    expect(seen).toEqual(['app', 'app', 'ours', 'ours'])
  })

  test('an offer behind an unanswered request does not overtake it', async () => {
    // Both have come by then, in one piece.
    const request = (asked: IncomingMessage, response: ServerResponse) => {
      setImmediate(() => response.end(`[${asked.url}]`))
    }
    addMount(host, { ...mounted('ours'), request })
    const ask = (path: string, ...fields: string[]) =>
      [`GET ${path} HTTP/1.1`, 'host: ours', ...fields].join('\r\n').concat('\r\n\r\n')
    const websocket = ['connection: upgrade, close', 'upgrade: websocket']
    const answers = await rawCall(port, ask('/a') + ask('/b', ...websocket))
    expect(answers.match(/\[\/.\]/g)).toEqual(canDecline ? ['[/a]', '[/b]'] : null)
  })

  test.runIf(canDecline).each([
    ['of another kind', 'ours', '', ['connection: upgrade', 'upgrade: h2c']],
    ['with a body', 'ours', 'hello', ['connection: upgrade', 'upgrade: websocket', 'content-length: 5']],
    ["on a host of the embedder's", 'theirs', '', ['connection: upgrade', 'upgrade: h2c']],
  ])('E5: nothing is handled behind an offer that we refuse: %s', async (_, to, body, fields) => {
    const offered: ServerResponse[] = []
    const request = (asked: IncomingMessage, response: ServerResponse) => {
      seen.push(asked.url!)
      if (asked.url === '/offer') offered.push(response)
      else response.end()
    }
    host.on('request', request).on('upgrade', upgraded('app upgrade'))
    addMount(host, { ...mounted('ours'), upgrades: ({ url }) => url === '/offer', request })
    const connected = once(host, 'connection')
    const caller = connect(port, '127.0.0.1')
    let answers = ''
    caller.on('data', chunk => (answers += chunk))
    const [accepted] = await connected
    const ask = (to: string, line: string, ...fields: string[]) =>
      [`${line} HTTP/1.1`, `host: ${to}`, ...fields].join('\r\n').concat('\r\n\r\n')
    // Node forgets the POST, of which only the body then comes.
    const first = `${ask(to, 'GET /offer', ...fields)}${body}${ask('ours', 'POST /', 'content-length: 1000')}abc`
    const smuggled = [ask('ours', 'GET /'), ask('theirs', 'GET /'), ask('theirs', 'GET /', ...offer)]
    const second = smuggled.join('')
    caller.write(first)
    await eventually(() => expect(accepted.bytesRead).toBe(first.length))
    caller.write(second)
    await eventually(() => expect(accepted.bytesRead).toBe(first.length + second.length))
    offered[0]!.end('taken')
    await once(caller, 'end')
    expect(answers).toMatch(/^HTTP\/1\.1 200 OK\r\n(?:.+\r\n)*connection: close\r\n(?:.+\r\n)*\r\ntaken$/i)
    expect(seen).toEqual(['/offer'])
  })

  test.runIf(canDecline)('an embedder may accept an offer if it listens for it', async () => {
    host.on('request', answering('app'))
    host.on('upgrade', upgraded('app upgrade'))
    Object.assign(host, { shouldUpgradeCallback: ({ headers }: IncomingMessage) => headers.upgrade !== 'h2c' })
    const back = addMount(host, mounted('ours'))
    await ask('theirs', ...offer)
    await ask('theirs', 'connection: upgrade', 'upgrade: other')
    back()
    await ask('theirs', ...offer)
    expect(seen).toEqual(['app', 'app upgrade', 'app'])
  })
})
