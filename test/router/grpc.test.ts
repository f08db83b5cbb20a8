/** gRPC through the router service: HTTP/2 in, an `h2c://` target, trailers both ways. */
import * as grpc from '@grpc/grpc-js'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type RouterService, serveRouter } from '../../router/index.ts'

const bytes = {
  requestSerialize: (value: Buffer) => value,
  requestDeserialize: (value: Buffer) => value,
  responseSerialize: (value: Buffer) => value,
  responseDeserialize: (value: Buffer) => value,
}

const definition = {
  unary: { path: '/test.Echo/Unary', requestStream: false, responseStream: false, ...bytes },
  fail: { path: '/test.Echo/Fail', requestStream: false, responseStream: false, ...bytes },
  bidi: { path: '/test.Echo/Bidi', requestStream: true, responseStream: true, ...bytes },
} satisfies grpc.ServiceDefinition

describe('gRPC', () => {
  const server = new grpc.Server()
  let service: RouterService
  let client: grpc.Client

  beforeAll(async () => {
    server.addService(definition, {
      unary: (call: grpc.ServerUnaryCall<Buffer, Buffer>, done: grpc.sendUnaryData<Buffer>) => {
        const trailers = new grpc.Metadata()
        trailers.set('x-tail', 'yes')
        done(null, call.request, trailers)
      },
      fail: (_: unknown, done: grpc.sendUnaryData<Buffer>) =>
        done({ code: grpc.status.NOT_FOUND, details: 'not here' }),
      bidi: (call: grpc.ServerDuplexStream<Buffer, Buffer>) => {
        call.on('data', chunk => call.write(chunk))
        call.on('end', () => call.end())
      },
    })
    const port = await new Promise<number>((resolve, reject) => {
      const credentials = grpc.ServerCredentials.createInsecure()
      server.bindAsync('127.0.0.1:0', credentials, (error, bound) => (error === null ? resolve(bound) : reject(error)))
    })
    const routes = [{ name: 'grpc', match: { path: '/test.Echo' }, target: `h2c://127.0.0.1:${port}` }]
    service = await serveRouter({ port: 0, routes: { routes } })
    client = new grpc.Client(`127.0.0.1:${service.address.port}`, grpc.credentials.createInsecure())
  })

  afterAll(async () => {
    client.close()
    server.forceShutdown()
    await service.close({ graceMs: 0 })
  })

  it('unary, with trailers and with an error status', async () => {
    const { path } = definition.unary
    const answer = await new Promise<{ value: Buffer; status: grpc.StatusObject }>((resolve, reject) => {
      let value: Buffer = Buffer.alloc(0)
      const call = client.makeUnaryRequest(
        path,
        bytes.requestSerialize,
        bytes.responseDeserialize,
        Buffer.from('hello'),
        (error, given) => {
          if (error !== null) reject(error)
          else value = given!
        },
      )
      call.on('status', status => resolve({ value, status }))
    })
    expect(answer.status.metadata.get('x-tail')).toEqual(['yes'])
    expect(String(answer.value)).toBe('hello')
    const failed = await new Promise<grpc.ServiceError | null>(resolve => {
      client.makeUnaryRequest(
        definition.fail.path,
        bytes.requestSerialize,
        bytes.responseDeserialize,
        Buffer.from('x'),
        resolve,
      )
    })
    expect(failed).toMatchObject({ code: grpc.status.NOT_FOUND, details: 'not here' })
  })

  it('bidirectional: each message is answered before the next is sent', async () => {
    const call = client.makeBidiStreamRequest(definition.bidi.path, bytes.requestSerialize, bytes.responseDeserialize)
    for (const text of ['one', 'two', 'three']) {
      const echoed = new Promise<Buffer>(resolve => call.once('data', resolve))
      call.write(Buffer.from(text))
      expect(String(await echoed)).toBe(text)
    }
    const status = new Promise<grpc.StatusObject>(resolve => call.on('status', resolve))
    call.on('data', () => {})
    call.end()
    expect((await status).code).toBe(grpc.status.OK)
  })

  it('no route is 404, which gRPC calls unimplemented', async () => {
    const failed = await new Promise<grpc.ServiceError | null>(resolve => {
      client.makeUnaryRequest('/other/X', bytes.requestSerialize, bytes.responseDeserialize, Buffer.from('x'), resolve)
    })
    expect(failed).toMatchObject({ code: grpc.status.UNIMPLEMENTED })
  })
})
