/**
 * A caller that waits for a 100 before it sends its body, as curl and Go do, gets the same answer through the router as from the
 * target itself, whatever the target does with the body.
 */
import { once } from 'node:events'
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net'
import { afterEach, describe, expect, it } from 'vitest'
import { type RouterService, serveRouter } from '../../router/index.ts'

const BODY = 'b'.repeat(200_000)
const ANSWER = 'a'.repeat(1_000_000)
const chunkOf = (text: string) => `${text.length.toString(16)}\r\n${text}\r\n`

/** Whole answers: status and fields, and the body as it is framed. */
const ANSWERS: Record<string, string> = {
  '200 with length': `HTTP/1.1 200 OK\r\ncontent-length: ${ANSWER.length}\r\n\r\n${ANSWER}`,
  '200 in chunks': `HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n${chunkOf(ANSWER)}0\r\n\r\n`,
  '200 until close': `HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n${ANSWER}`,
  '200 without body': 'HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n',
  '204': 'HTTP/1.1 204 No Content\r\n\r\n',
  '307': `HTTP/1.1 307 Temporary Redirect\r\nlocation: /x\r\ncontent-length: ${ANSWER.length}\r\n\r\n${ANSWER}`,
  '413': `HTTP/1.1 413 Content Too Large\r\ncontent-length: ${ANSWER.length}\r\n\r\n${ANSWER}`,
}

/** What a target that never reads the body does behind its answer. Closing with unread bytes makes its kernel drop what has not left. */
const ENDS: Record<string, (socket: Socket) => void> = {
  closes: socket => socket.destroy(),
  'closes its half': socket => socket.end(),
  'closes a while later': socket => void setTimeout(() => socket.destroy(), 150),
}

let target: Server
let service: RouterService
const sockets = new Set<Socket>()
afterEach(async () => {
  await service.close({ graceMs: 0 })
  for (const socket of sockets) socket.destroy()
  target.close()
})

async function serve(take: (socket: Socket) => void): Promise<void> {
  target = createServer({ allowHalfOpen: true }, socket => {
    sockets.add(socket)
    socket.on('error', () => {})
    socket.once('data', () => take(socket))
  })
  target.listen(0, '127.0.0.1')
  await once(target, 'listening')
  const routes = [{ name: 'all', match: {}, target: `http://127.0.0.1:${(target.address() as AddressInfo).port}` }]
  service = await serveRouter({ port: 0, routes: { routes } })
}

interface Answered {
  status: string
  continued: boolean
  body: string
  isWhole: boolean
}

/** Sends its body at a 100, or after `waitMs` without a complete answer. */
async function upload(port: number, waitMs: number): Promise<Answered> {
  const caller = connect(port, '127.0.0.1')
  let text = ''
  const closed = new Promise<void>(resolve => caller.once('close', () => resolve()))
  caller.on('error', () => {})
  caller.on('end', () => caller.destroy())
  let sent = false
  const send = () => {
    if (!sent) caller.write(BODY)
    sent = true
  }
  caller.write(`POST / HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\ncontent-length: ${BODY.length}\r\n\r\n`)
  const timer = setTimeout(send, waitMs)
  caller.on('data', bytes => {
    text += bytes.toString('latin1')
    if (text.startsWith('HTTP/1.1 100')) send()
    if (answered(text, false).isWhole) caller.destroy()
  })
  await closed
  clearTimeout(timer)
  return answered(text, true)
}

function answered(text: string, closed: boolean): Answered {
  const continued = text.startsWith('HTTP/1.1 100')
  const final = continued ? text.slice(text.indexOf('\r\n\r\n') + 4) : text
  const at = final.indexOf('\r\n\r\n')
  if (at < 0) return { status: '', continued, body: '', isWhole: false }
  const fields = final.slice(0, at).toLowerCase()
  const raw = final.slice(at + 4)
  const status = final.slice(9, 12)
  const length = /content-length: (\d+)/.exec(fields)?.[1]
  if (fields.includes('chunked')) {
    const body = raw.replace(/(?:^|\r\n)[0-9a-f]+\r\n/g, '').replace(/\r\n$/, '')
    return { status, continued, body, isWhole: raw.endsWith('\r\n0\r\n\r\n') }
  }
  const isWhole = status === '204' ? true : length === undefined ? closed : raw.length === Number(length)
  return { status, continued, body: raw, isWhole }
}

/** The caller does the same at the target and at the router. */
async function compare(waitMs: number): Promise<Answered> {
  const direct = await upload((target.address() as AddressInfo).port, waitMs)
  const routed = await upload(service.address.port, waitMs)
  expect({ ...routed, body: routed.body.length }).toEqual({ ...direct, body: direct.body.length })
  expect(routed.body === direct.body).toBe(true)
  expect(routed.isWhole).toBe(true)
  return routed
}

describe.each(Object.entries(ANSWERS))('a target that answers %s instead of the 100', (_, answer) => {
  it.each(Object.entries(ENDS))('never reads, and %s: the whole answer arrives', async (_, end) => {
    await serve(socket => {
      socket.pause()
      socket.write(answer, () => end(socket))
    })
    for (let i = 0; i < 3; i++) expect((await compare(60_000)).continued).toBe(false)
  })
})

describe('a target that begins its answer and reads the body for the rest of it', () => {
  it.each([
    ['with length', `content-length: ${BODY.length}`, (text: string) => text, ''],
    ['in chunks', 'transfer-encoding: chunked', chunkOf, '0\r\n\r\n'],
    ['until close', 'connection: close', (text: string) => text, ''],
  ])('%s: the caller that goes on without a 100 gets it', async (_, field, frame, last) => {
    await serve(socket => {
      let bytes = 0
      socket.write(`HTTP/1.1 200 OK\r\n${field}\r\n\r\n`)
      socket.on('data', chunk => {
        bytes += chunk.length
        socket.write(frame(chunk.toString('latin1')))
        if (bytes === BODY.length) socket.end(last)
      })
    })
    expect((await compare(100)).body).toBe(BODY)
  })

  it('and says so first: its 100 is passed on', async () => {
    await serve(socket => {
      socket.write('HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nconnection: close\r\n\r\n')
      let bytes = 0
      socket.on('data', chunk => {
        bytes += chunk.length
        if (bytes === BODY.length) socket.end('read')
      })
    })
    expect(await compare(60_000)).toMatchObject({ continued: true, body: 'read' })
  })
})
