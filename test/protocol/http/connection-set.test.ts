import { expect, test } from 'vitest'
import { ConnectionSet, type ManagedConnection } from '../../../protocol/http/connection-set.ts'

test('a connection that fails to end keeps no other', async () => {
  const set = new ConnectionSet(9)
  const calls: string[] = []
  const connection = (name: string, fails: boolean): ManagedConnection => {
    const made = {
      address: '10.0.0.1',
      idle: true,
      close: () => called('close'),
      destroy: () => {
        set.delete(made)
        called('destroy')
      },
    }
    const called = (what: string) => {
      calls.push(`${what} ${name}`)
      if (fails) throw new Error('cannot end')
    }
    return made
  }
  set.add(connection('a', true))
  set.add(connection('b', false))
  let stopped = false
  await set.close(10, false, async () => {
    stopped = true
  })
  expect([calls, stopped]).toEqual([['close a', 'close b', 'destroy a', 'destroy b'], true])
})
