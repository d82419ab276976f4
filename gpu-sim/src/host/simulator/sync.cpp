// Shuffles and votes, for all lanes of a warp operation.
namespace meshwright_host {

void shuffle_all(void* const* operands, uint32_t lanes) {
    for (int lane = 0; lane < 32; lane++) {
        if (!(lanes >> lane & 1)) continue;
        Shuffle* shuffle = static_cast<Shuffle*>(operands[lane]);
        // The value of a lane outside the mask is undefined.
        bool taken_part = lanes >> shuffle->source & 1;
        shuffle->result = taken_part ? static_cast<Shuffle*>(operands[shuffle->source])->value : ~0ull;
    }
}

void ballot_all(void* const* operands, uint32_t lanes) {
    uint32_t ballot = 0;
    for (int lane = 0; lane < 32; lane++) {
        if (lanes >> lane & 1) ballot |= static_cast<Vote*>(operands[lane])->predicate << lane;
    }
    for (int lane = 0; lane < 32; lane++) {
        if (lanes >> lane & 1) static_cast<Vote*>(operands[lane])->result = ballot;
    }
}

}  // namespace meshwright_host
