/** A WebSocket whose ends close their halves one after the other: neither loses what the other sends afterwards, whatever the target. */
import { once } from 'node:events'
import { createServer, type Server } from 'node:http'
import { type AddressInfo, connect, createServer as createService, type Server as Service } from 'node:net'
import type { Duplex } from 'node:stream'
import { setImmediate as turn } from 'node:timers/promises'
import { afterEach, expect, it } from 'vitest'
import { openTarget } from '../../../client/targets/index.ts'
import { noLogger } from '../../../protocol/base/log.ts'
import { webSocketAccept } from '../../../protocol/http/http1/websocket.ts'
import { createRouter } from '../../../router/index.ts'
import { DEAF, EXCHANGE } from '../../support/ends.ts'

const SAID = 'a'.repeat(300_000)
const ASKED = 'c'.repeat(300_000)
const close: (() => void)[] = []

afterEach(() => {
  for (const step of close.splice(0).reverse()) step()
})

/** What an application does with a connection that it has upgraded. */
type Talk = (socket: Duplex) => void

function application(talk: Talk): Server {
  return createServer().on('upgrade', ({ headers }, socket) => {
    const accept = webSocketAccept(headers['sec-websocket-key']!)
    socket.write('HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n')
    socket.write(`Sec-WebSocket-Accept: ${accept}\r\n\r\n`)
    talk(socket.on('error', () => {}))
  })
}

async function listening(service: Service): Promise<number> {
  service.listen(0, '127.0.0.1')
  close.push(() => service.close())
  await once(service, 'listening')
  return (service.address() as AddressInfo).port
}

const urlOf = async (talk: Talk) => `http://127.0.0.1:${await listening(application(talk))}`

const TARGETS = {
  'a URL': urlOf,
  'a router': async (talk: Talk) =>
    createRouter({ routes: { routes: [{ name: 'all', match: { path: '/' }, target: await urlOf(talk) }] } }),
  'an http.Server': application,
  'an http.Server that pipes to another service': async (talk: Talk) => {
    const port = await listening(createService({ allowHalfOpen: true }, talk))
    return application(socket => {
      const service = connect({ port, host: '127.0.0.1', allowHalfOpen: true }).on('error', () => {})
      close.push(() => service.destroy())
      service.pipe(socket).pipe(service)
    })
  },
}

/** Calls the target, and sends `ASKED` as soon as it is upgraded, when the application has ended its half, or never. */
async function call(target: keyof typeof TARGETS, talk: Talk, asks: 'at once' | 'last' | 'never') {
  const opened = openTarget(await TARGETS[target](talk), noLogger)
  close.push(() => opened.close())
  const upgraded = Promise.withResolvers<void>()
  const ended = Promise.withResolvers<void>()
  let told = ''
  const sink = opened.handler(
    { ...EXCHANGE, path: '/', upgrade: true },
    {
      ...DEAF,
      responseHead: () => upgraded.resolve(),
      responseData: chunk => {
        told += Buffer.from(chunk).toString()
        setImmediate(() => sink.responseConsumed(chunk.length))
      },
      responseEnd: () => ended.resolve(),
      responseAbort: ended.reject,
    },
  )
  await (asks === 'at once' ? upgraded.promise : ended.promise)
  if (asks === 'never') return told
  await turn()
  for (let at = 0; at < ASKED.length; at += 50_000) sink.requestData(Buffer.from(ASKED.slice(at, at + 50_000)))
  sink.requestEnd([])
  await ended.promise
  return told
}

const EACH = Object.keys(TARGETS) as (keyof typeof TARGETS)[]

it.each(EACH)('%s ends its half first', async target => {
  const asked = Promise.withResolvers<string>()
  const talk: Talk = socket => {
    let text = ''
    socket.on('data', chunk => {
      text += String(chunk)
    })
    socket.on('close', () => asked.resolve(text)).end(SAID)
  }
  expect((await call(target, talk, 'last')) === SAID).toBe(true)
  expect((await asked.promise) === ASKED).toBe(true)
})

it.each(EACH)('the caller of %s ends its half first', async target => {
  const asked = Promise.withResolvers<string>()
  const talk: Talk = socket => {
    let text = ''
    socket.on('data', chunk => {
      text += String(chunk)
    })
    socket.on('end', () => {
      asked.resolve(text)
      setImmediate(() => socket.end(SAID))
    })
  }
  expect((await call(target, talk, 'at once')) === SAID).toBe(true)
  expect((await asked.promise) === ASKED).toBe(true)
})

it.each(EACH)('%s that ends both halves has ended, though its caller keeps its own open', async target => {
  const closed = Promise.withResolvers<void>()
  const talk: Talk = socket => {
    socket.on('close', () => closed.resolve())
    ;(socket as unknown as { destroySoon(): void }).destroySoon()
  }
  await call(target, talk, 'never')
  await closed.promise
})
