/** The deadline of a connection to Redis that is being made, whatever the other end does, and however late we are ourselves. */
import { once } from 'node:events'
import { createServer, type Server, type Socket } from 'node:net'
import { afterEach, describe, expect, test } from 'vitest'
import { endClient, makeClient } from '../../../server/directory/redis-client.ts'
import { RedisLink } from '../../../server/directory/redis-link.ts'

const DEADLINE_MS = 100
const HELLO = '%2\r\n+mode\r\n+standalone\r\n+role\r\n+master\r\n'

/** What a node says to the first of what it is sent. */
const NODES: Record<string, string> = {
  'says nothing': '',
  'says half of an answer': '%3\r\n$4\r\nmode\r\n',
  'announces more than it says': '$99999999999999\r\nabc',
  'speaks something else': 'HTTP/1.1 400 Bad Request\r\n\r\n',
  'is well, but too late': `${HELLO}${HELLO}`,
}

const nodes: Server[] = []
afterEach(() => Promise.all(nodes.splice(0).map(node => node.close())))

interface Node {
  readonly host: string
  /** Resolves when somebody has come and gone. */
  readonly left: Promise<unknown>
}

async function listen(says: string): Promise<Node> {
  const server = createServer(socket => {
    socket.on('error', () => {})
    socket.once('data', () => socket.write(says))
  })
  const left = once(server, 'connection').then(([socket]: Socket[]) => once(socket!, 'close'))
  nodes.push(server.listen(0, '127.0.0.1'))
  await once(server, 'listening')
  return { host: `127.0.0.1:${(server.address() as { port: number }).port}`, left }
}

/** Making a client takes longer than the deadline, as the first one does on a busy machine: it passes while we connect. */
function open(url: string) {
  const told: string[] = []
  const listener = { message() {}, closed: (error: Error) => told.push(error.message) }
  const address = {
    url,
    get ca() {
      const end = performance.now() + 2 * DEADLINE_MS
      while (performance.now() < end);
      return undefined
    },
  }
  return { told, opened: RedisLink.open(address, { channel: 'channel', key: 'key' }, DEADLINE_MS, listener) }
}

describe.each(Object.entries(NODES))('a node that %s', (_, says) => {
  test.each([
    ['redis', ''],
    ['redis+sentinel', '/name'],
  ])('is given up at the deadline, and nothing stays of it: %s', async (scheme, name) => {
    const node = await listen(says)
    const { told, opened } = open(`${scheme}://${node.host}${name}`)
    await expect(opened).rejects.toThrow('Redis does not answer')
    expect(told).toEqual(['Redis does not answer'])
    await node.left
  })
})

test('of several Sentinels those that connect when one has answered are left', async () => {
  const node = await listen('')
  const client = makeClient({ url: `redis://${node.host}` }, entry => entry)
  client.on('error', () => {})
  const connecting = client.connect()
  endClient(client)
  await expect(connecting).rejects.toThrow()
  await node.left
})
