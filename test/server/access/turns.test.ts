import { expect, test } from 'vitest'
import { Turns } from '../../../server/access/turns.ts'

/** Tasks that end when told to; `begun` lists their names in order. */
function ground(limits: { atOnce: number; perNetwork: number; waiting: number }) {
  const turns = new Turns(limits)
  const begun: string[] = []
  const ends = new Map<string, () => void>()
  const run = (name: string, address: string, signal = new AbortController().signal) =>
    turns.run(address, signal, () => {
      begun.push(name)
      return new Promise<string>(resolve => ends.set(name, () => resolve(name)))
    })
  return { run, begun, end: (name: string) => ends.get(name)!() }
}

test('a network has a bounded share at a time, and others go before what it has waiting', async () => {
  const { run, begun, end } = ground({ atOnce: 3, perNetwork: 2, waiting: 10 })
  const stranger = ['s1', 's2', 's3', 's4'].map(name => run(name, '192.0.2.1'))
  const other = ['o1', 'o2'].map(name => run(name, '192.0.2.2'))
  expect(begun).toEqual(['s1', 's2', 'o1'])
  end('s1')
  await stranger[0]
  expect(begun).toEqual(['s1', 's2', 'o1', 's3'])
  end('s2')
  await stranger[1]
  expect(begun.at(-1)).toBe('o2')
  for (const name of ['s3', 'o1', 'o2']) end(name)
  await Promise.all([stranger[2], ...other])
  end('s4')
  await stranger[3]
})

test('an IPv6 /64 is one network', async () => {
  const { run, begun } = ground({ atOnce: 3, perNetwork: 1, waiting: 10 })
  for (const last of [1, 2, 3]) void run(`a${last}`, `2001:db8::${last}`)
  void run('b', '2001:db8:0:1::1')
  expect(begun).toEqual(['a1', 'b'])
})

test('where too many wait, the network that has most waiting loses its newest', async () => {
  const { run, begun, end } = ground({ atOnce: 1, perNetwork: 1, waiting: 3 })
  const waiting = ['s1', 's2', 's3', 's4'].map(name => run(name, '192.0.2.1'))
  const other = run('o1', '192.0.2.2')
  await expect(waiting[3]).rejects.toMatchObject({ reason: 'overloaded' })
  await expect(run('s5', '192.0.2.1')).rejects.toMatchObject({ reason: 'overloaded' })
  end('s1')
  await waiting[0]
  end('s2')
  await waiting[1]
  expect(begun).toEqual(['s1', 's2', 'o1'])
  end('o1')
  await other
  expect(begun).toEqual(['s1', 's2', 'o1', 's3'])
})

test('a caller that leaves while it waits takes no turn, and a task that fails gives its turn back', async () => {
  const { run, begun, end } = ground({ atOnce: 1, perNetwork: 1, waiting: 1 })
  const first = run('first', '192.0.2.1')
  const gone = new AbortController()
  const left = run('left', '192.0.2.1', gone.signal)
  gone.abort()
  await expect(left).rejects.toThrow('aborted')
  const last = run('last', '192.0.2.1')
  end('first')
  await first
  end('last')
  await last
  expect(begun).toEqual(['first', 'last'])
  const turns = new Turns({ atOnce: 1, perNetwork: 1, waiting: 0 })
  const { signal } = new AbortController()
  await expect(turns.run('192.0.2.1', signal, () => Promise.reject(new Error('failed')))).rejects.toThrow('failed')
  expect(await turns.run('192.0.2.1', signal, async () => 'its turn')).toBe('its turn')
})
