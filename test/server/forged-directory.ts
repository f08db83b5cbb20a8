import type { Registration, RuntimeState } from '../../server/directory/directory.ts'
import { MemoryDirectory } from '../../server/directory/memory.ts'

/** Somebody else can write to it. */
export class ForgedDirectory extends MemoryDirectory {
  readonly #forged = new Map<string, RuntimeState>()

  /** From now on the host belongs to that runtime, or that instance of the runtime is active. */
  says(name: string, active: string): void {
    const instances = new Map([[active, { epoch: 9, replicas: ['elsewhere'] }]])
    this.#forged.set(name, { runtime: name, epoch: 9, active, instances, version: 9, changedMs: 0 })
  }

  override find(name: string): RuntimeState | undefined {
    return this.#forged.get(name) ?? super.find(name)
  }

  override async ready(registration: Registration): Promise<RuntimeState> {
    return this.#forged.get(registration.runtime) ?? (await super.ready(registration))
  }
}
