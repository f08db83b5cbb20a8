import { expect, test, vi } from 'vitest'
import { Attempts } from '../../../server/inbox/attempts.ts'
import type { InboxStore } from '../../../server/inbox/store.ts'
import { message, NOW } from './messages.ts'

test('a webhook is not delivered once it is gone, or its lane is that of another server', async () => {
  const store = { apply: async () => ({ status: 'absent', id: 'w-1' }) } as unknown as InboxStore
  const deliver = vi.fn()
  const unreachable = () => expect.unreachable()
  const attempts = new Attempts({
    ...{ store, deliver, now: () => NOW, random: () => 0.5 },
    ...{ pauseAfter: unreachable, onProgress: unreachable, onGivenUp: unreachable },
  })
  const waiting = { ...message('w-1'), state: 'waiting', changed: NOW } as const
  await expect(attempts.try(waiting)).rejects.toMatchObject({ name: 'StoreError', kind: 'gone' })
  expect(deliver).not.toHaveBeenCalled()
})
