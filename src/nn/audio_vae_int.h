/* audio_vae_int.h - what the two halves of the BigVGAN decoder share: dimensions, weights, buffers. */
#ifndef DUET_NN_AUDIO_VAE_INT_H
#define DUET_NN_AUDIO_VAE_INT_H

#include "nn/audio_vae.h"
#include "nn/vae_unit.h"

enum { DUET__STEREO = 2, DUET__END_KERNEL = 7 }; /* kernel of conv_pre and conv_post */

/* Positions of the handles in their units; the order is the order of loading. */
enum { AVAE_IN_W, AVAE_IN_B, AVAE_PRE_W, AVAE_PRE_B, AVAE_N_IN };
enum { ACT_ALPHA, ACT_BETA, ACT_UP, ACT_DOWN, N_ACT };
enum { AVAE_UP_W, AVAE_UP_B, AVAE_RES }; /* then n_res_kernels * n_res_dilations groups of AVAE_N_RES */
enum {
    RES_ACT1,
    RES_CONV1 = N_ACT,
    RES_ACT2 = RES_CONV1 + 2,
    RES_CONV2 = RES_ACT2 + N_ACT,
    AVAE_N_RES = RES_CONV2 + 2
};
enum { AVAE_POST_ACT, AVAE_POST_W = N_ACT, AVAE_N_OUT };

struct duet_audio_vae {
    duet_device *dev;
    duet_avae_config config;
    duet__vae_unit in, out, *stages;
    duet_unit **walk; /* in, stages, out */
};

/* Five buffers of the widest stage, and the three numbers of a stats op twice over. */
typedef struct duet__avae_buffers {
    float *x;     /* input of the residual blocks of a stage */
    float *a, *b; /* activation, convolution */
    float *h;     /* running value of one block */
    float *sum;   /* of the blocks; output of the stage */
    float *stats; /* [6] before and after the clamp */
} duet__avae_buffers;

int64_t duet__avae_carve(const duet_avae_config *config, int64_t n_latents, void *memory,
                         duet__avae_buffers *out);

/* Channels and samples for one latent after `stages` stages. */
int64_t duet__avae_channels(const duet_avae_config *config, int stages);
int64_t duet__avae_rate(const duet_avae_config *config, int stages);

#endif
