/** gRPC from an HTTP/2 edge to an h2c upstream, and gRPC-web, whose body is like any other. */

import { once } from 'node:events'
import {
  type ChannelCredentials,
  type ChannelOptions,
  type Client,
  credentials,
  type handleUnaryCall,
  Metadata,
  makeGenericClientConstructor,
  Server,
  ServerCredentials,
  type ServerDuplexStream,
  type ServiceDefinition,
  status,
} from '@grpc/grpc-js'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { chunk, value } from '../support/http1-wire.ts'
import { allEntries, describeThrough, type EntryName, http2Entries, Stack } from '../support/stack.ts'

const bytes = { serialize: (value: Buffer) => value, deserialize: (value: Buffer) => value }
const method = (name: string, isStream: boolean) => ({
  path: `/test.Echo/${name}`,
  requestStream: isStream,
  responseStream: isStream,
  requestSerialize: bytes.serialize,
  requestDeserialize: bytes.deserialize,
  responseSerialize: bytes.serialize,
  responseDeserialize: bytes.deserialize,
})
const ECHO = {
  unary: method('Unary', false),
  fail: method('Fail', false),
  chat: method('Chat', true),
} satisfies ServiceDefinition

interface EchoClient extends Client {
  unary(
    request: Buffer,
    metadata: Metadata,
    done: (error: Error | null, answer?: Buffer) => void,
  ): {
    on(event: 'metadata' | 'status', listener: (value: never) => void): void
  }
  fail(
    request: Buffer,
    done: (error: (Error & { code: number; details: string; metadata: Metadata }) | null) => void,
  ): void
  chat(): ServerDuplexStream<Buffer, Buffer>
}

let grpc: Server
let stack: Stack

const unary: handleUnaryCall<Buffer, Buffer> = (call, done) => {
  const initial = new Metadata()
  initial.set('x-initial', String(call.metadata.get('x-sent')[0]))
  call.sendMetadata(initial)
  const trailing = new Metadata()
  trailing.set('x-trailing', 'at the end')
  trailing.set('x-raw-bin', Buffer.from([0, 255, 1]))
  done(null, Buffer.concat([Buffer.from('echo: '), call.request]), trailing)
}

beforeAll(async () => {
  grpc = new Server()
  grpc.addService(ECHO, {
    unary,
    fail: ((_, done) => done({ code: status.FAILED_PRECONDITION, details: 'not now' })) as handleUnaryCall<
      Buffer,
      Buffer
    >,
    chat: (call: ServerDuplexStream<Buffer, Buffer>) => {
      call.on('data', (message: Buffer) => call.write(Buffer.from(`${message}!`)))
      call.on('end', () => call.end())
    },
  })
  const port = await new Promise<number>((resolve, reject) =>
    grpc.bindAsync('127.0.0.1:0', ServerCredentials.createInsecure(), (error, bound) =>
      error ? reject(error) : resolve(bound),
    ),
  )
  stack = await Stack.start(upstream => ({
    routes: [
      { name: 'grpc', match: { path: '/test.Echo' }, target: `h2c://127.0.0.1:${port}` },
      { name: 'web', match: { path: '/' }, target: `http://127.0.0.1:${upstream.port}` },
    ],
  }))
})
afterAll(async () => {
  await stack?.stop()
  grpc?.forceShutdown()
})

function client(name: EntryName): EchoClient {
  const { port, authority, ca } = stack.place(name)
  const channel: ChannelCredentials =
    ca === undefined ? credentials.createInsecure() : credentials.createSsl(Buffer.from(ca))
  const host = authority.split(':')[0] ?? ''
  const options: ChannelOptions = { 'grpc.default_authority': authority, 'grpc.enable_http_proxy': 0 }
  if (ca !== undefined) options['grpc.ssl_target_name_override'] = host
  const Echo = makeGenericClientConstructor(ECHO, 'test.Echo')
  return new Echo(`127.0.0.1:${port}`, channel, options) as unknown as EchoClient
}

describeThrough(http2Entries, name => {
  let echo: EchoClient
  beforeAll(() => {
    echo = client(name)
  })
  afterAll(() => echo?.close())

  it('unary: message, metadata and trailers', async () => {
    const metadata = new Metadata()
    metadata.set('x-sent', 'by the caller')
    const seen: { initial?: Metadata; trailing?: Metadata } = {}
    const answer = await new Promise<Buffer>((resolve, reject) => {
      const call = echo.unary(Buffer.from('hello'), metadata, (error, value) =>
        error || !value ? reject(error) : setImmediate(resolve, value),
      )
      call.on('metadata', ((initial: Metadata) => {
        seen.initial = initial
      }) as never)
      call.on('status', (({ metadata }: { metadata: Metadata }) => {
        seen.trailing = metadata
      }) as never)
    })
    expect(String(answer)).toBe('echo: hello')
    expect(seen.initial?.get('x-initial')).toEqual(['by the caller'])
    expect(seen.trailing?.get('x-trailing')).toEqual(['at the end'])
    expect(seen.trailing?.get('x-raw-bin')).toEqual([Buffer.from([0, 255, 1])])
  })

  it('a failure keeps its status and details', async () => {
    const error = await new Promise<{ code: number; details: string } | null>(resolve =>
      echo.fail(Buffer.from('x'), resolve),
    )
    expect([error?.code, error?.details]).toEqual([status.FAILED_PRECONDITION, 'not now'])
  })

  it('bidirectional: each message is answered before the next is sent', async () => {
    const call = echo.chat()
    for (let i = 0; i < 20; i++) {
      call.write(Buffer.from(`message ${i}`))
      const [answer] = await once(call, 'data')
      expect(String(answer)).toBe(`message ${i}!`)
    }
    call.end()
    await once(call, 'end')
  })

  it('a message of 3 MB', async () => {
    const message = Buffer.alloc(3_000_000, 'large ')
    const answer = await new Promise<Buffer>((resolve, reject) =>
      echo.unary(message, new Metadata(), (error, value) => (error || !value ? reject(error) : resolve(value))),
    )
    expect(answer.subarray(6).equals(message)).toBe(true)
  })
})

describeThrough(allEntries, name => {
  it('gRPC-web: frames pass unchanged in both directions, each as it arrives', async () => {
    const frame = (kind: number, text: string) => {
      const head = Buffer.alloc(5)
      head[0] = kind
      head.writeUInt32BE(text.length, 1)
      return Buffer.concat([head, Buffer.from(text)])
    }
    const path = stack.upstream.on('grpc-web', async request => {
      const body = await request.readAll()
      await request.write(
        'HTTP/1.1 200 OK\r\ncontent-type: application/grpc-web+proto\r\ntransfer-encoding: chunked\r\n\r\n',
      )
      await request.write(chunk(body))
      await request.write(chunk(frame(0x80, 'grpc-status: 0\r\n')))
      await request.write('0\r\n\r\n')
    })
    const caller = await stack.caller(name)
    const fields = ['content-type', 'application/grpc-web+proto', 'x-grpc-web', '1']
    const reply = await caller.ask({ method: 'POST', path, fields, body: frame(0, 'message') })
    expect(value(reply.fields, 'content-type')).toBe('application/grpc-web+proto')
    expect(reply.content).toEqual(Buffer.concat([frame(0, 'message'), frame(0x80, 'grpc-status: 0\r\n')]))
  })
})
