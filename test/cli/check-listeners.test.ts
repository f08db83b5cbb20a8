/** `listen` of `sallyport check` for a port that only root may open, as a user without that right. */
import { once } from 'node:events'
import { createServer } from 'node:net'
import { expect, test } from 'vitest'
import { probeListeners } from '../../cli/check/listeners.ts'

const address = { host: '127.87.65.43', port: 443 }

test.runIf(process.getuid?.() === 0)('with a socket unit that has opened it, and without', async () => {
  const unit = createServer(socket => socket.destroy())
  await once(unit.listen(address), 'listening')
  process.seteuid!(65534)
  try {
    const [opened] = await probeListeners({ 'public.listen': address })
    unit.close()
    await once(unit, 'close')
    const [none] = await probeListeners({ 'public.listen': address })
    expect(opened).toMatchObject({ status: 'warn', found: 'something is already listening there' })
    expect(none).toMatchObject({ status: 'fail', found: 'EACCES' })
  } finally {
    process.seteuid!(0)
    unit.close()
  }
})
