import { once } from 'node:events'
import { type AddressInfo, connect, createServer, type Socket } from 'node:net'
import { buffer } from 'node:stream/consumers'
import fc from 'fast-check'
import { expect, test } from 'vitest'
import { SocketWriter } from '../../../../protocol/http/http1/socket-writer.ts'
import { contentOf } from '../../../support/http1-wire.ts'

/** More than the kernel takes for a socket that nobody reads. */
const FILL_BYTES = 8_000_000

/** A size is a piece of that many bytes. */
const step = fc.oneof(
  { weight: 4, arbitrary: fc.constantFrom(1, 2, 100, 1023, 1024, 5000, 130_000) },
  { weight: 3, arbitrary: fc.constantFrom('turn', 'flush', 'many', 'read') },
)

test('the pieces of a body in chunks arrive in order, and are reported, whenever the socket waits', async () => {
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  const run = async (fills: boolean, steps: (number | string)[]) => {
    const near = connect(port, '127.0.0.1')
    const [far] = (await once(server, 'connection')) as [Socket]
    const writer = new SocketWriter(near, { writeWaits() {}, wrote() {}, threw() {} })
    let left = 0
    const owner = {
      sent: (bytes: number) => {
        left += bytes
      },
    }
    const given: Buffer[] = []
    const give = (size: number) => {
      const piece = Buffer.alloc(size, given.length % 251)
      given.push(piece)
      writer.chunk(piece, owner)
    }
    let got: Promise<Buffer> | undefined
    const fill = fills ? FILL_BYTES : 0
    if (fills) writer.body(Buffer.alloc(fill), { sent() {} })
    for (const step of steps) {
      if (typeof step === 'number') give(step)
      else if (step === 'many') for (let i = 0; i < 100; i++) give(1)
      else if (step === 'flush') writer.flush()
      else if (step === 'turn') await new Promise(setImmediate)
      else got ??= buffer(far)
    }
    writer.text('0\r\n\r\n')
    writer.end()
    const bytes = (await (got ?? buffer(far))).subarray(fill)
    const whole = Buffer.concat(given)
    expect((await contentOf(bytes)).equals(whole)).toBe(true)
    expect([left, writer.held, writer.writtenBytes]).toEqual([whole.length, 0, fill + bytes.length])
    near.destroy()
    far.destroy()
  }
  await fc.assert(fc.asyncProperty(fc.boolean(), fc.array(step, { maxLength: 40 }), run), { numRuns: 20 })
  server.close()
})
